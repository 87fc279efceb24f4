"""The pipeline text -> keys -> index: resumable, and finished steps are never done again."""

from knn_seq.build.index import add_index
from knn_seq.build.pipeline import build_datastore
from knn_seq.build.subset import prepare_subset

__all__ = ["add_index", "build_datastore", "prepare_subset"]
