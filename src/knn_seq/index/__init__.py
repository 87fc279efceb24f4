"""The nearest keys of a query: SearchIndex and its implementations, a file per library."""

from knn_seq.index.base import INDEXES, METRICS, SearchIndex, SearchResult
from knn_seq.index.open import open_index
from knn_seq.index.recipe import default_recipe, paper_recipe, training_size

__all__ = [
    "INDEXES",
    "METRICS",
    "SearchIndex",
    "SearchResult",
    "default_recipe",
    "open_index",
    "paper_recipe",
    "training_size",
]
