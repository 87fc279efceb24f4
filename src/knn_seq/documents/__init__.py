"""A file in, the same file translated out; a file per format."""

from knn_seq.documents.base import DOCUMENT_FORMATS, Document, Filled, Segment
from knn_seq.documents.opening import open_document, require_known_format

__all__ = ["DOCUMENT_FORMATS", "Document", "Filled", "Segment", "open_document", "require_known_format"]
