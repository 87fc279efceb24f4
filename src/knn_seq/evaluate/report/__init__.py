"""A comparison as one HTML file that stands alone."""

from knn_seq.evaluate.report.page import write_report

__all__ = ["write_report"]
