"""The pipeline text -> keys -> index: resumable, and finished steps are never done again."""

from knn_seq.build.pipeline import build_datastore

__all__ = ["build_datastore"]
