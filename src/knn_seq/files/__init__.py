"""Complete files through a translator: placeholders kept, stored translations used as they are, a report."""

from knn_seq.files.report import FileReport, SegmentReport
from knn_seq.files.translate import translate_file

__all__ = ["FileReport", "SegmentReport", "translate_file"]
