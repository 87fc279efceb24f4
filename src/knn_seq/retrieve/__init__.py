"""A query to its neighbours."""

from knn_seq.retrieve.base import RETRIEVERS, Retriever

__all__ = ["RETRIEVERS", "Retriever"]
