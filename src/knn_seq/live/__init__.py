"""A finished datastore that changes while it is used: add, update, delete, fold, compact, merge, find."""

from knn_seq.live.add import add_pairs
from knn_seq.live.compact import compact_datastore
from knn_seq.live.delete import delete_pairs
from knn_seq.live.find import find_pairs, live_pairs
from knn_seq.live.merge import merge_datastores

__all__ = ["add_pairs", "compact_datastore", "delete_pairs", "find_pairs", "live_pairs", "merge_datastores"]
