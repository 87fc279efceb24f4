"""knn-seq: nearest-neighbour machine translation."""

__version__ = "0.1.0"
