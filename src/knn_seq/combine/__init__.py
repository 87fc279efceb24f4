"""Neighbours and the model's distribution to one distribution."""

from knn_seq.combine.base import COMBINERS, Combiner

__all__ = ["COMBINERS", "Combiner"]
