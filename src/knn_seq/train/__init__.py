"""Combiners that learn how much neighbours count, from the datastore's own sentences or a dev set."""

from knn_seq.train.run import Training, examples_for, train
from knn_seq.train.store import store_combiner

__all__ = ["Training", "examples_for", "store_combiner", "train"]
