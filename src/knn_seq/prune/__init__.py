"""A smaller datastore out of a finished one: the entries that are worth their place."""

from knn_seq.prune.base import PRUNING_METHODS, Evidence, PruningMethod, Selection
from knn_seq.prune.run import prune_datastore

__all__ = ["PRUNING_METHODS", "Evidence", "PruningMethod", "Selection", "prune_datastore"]
