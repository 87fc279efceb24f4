"""The nearest keys of a query: SearchIndex and its implementations, a file per library."""

from knn_seq.index.base import INDEXES, SearchIndex, SearchResult
from knn_seq.index.neighbours import Neighbours
from knn_seq.index.recipe import default_recipe, paper_recipe, training_size
from knn_seq.index.stored import delete_unused, discard_index, open_index

__all__ = [
    "INDEXES",
    "Neighbours",
    "SearchIndex",
    "SearchResult",
    "default_recipe",
    "delete_unused",
    "discard_index",
    "open_index",
    "paper_recipe",
    "training_size",
]
