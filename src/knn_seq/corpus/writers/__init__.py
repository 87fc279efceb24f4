"""Sentence pairs out, in formats that others read; a file per format."""

from knn_seq.corpus.writers.base import PAIR_WRITERS, PairWriter

__all__ = ["PAIR_WRITERS", "PairWriter"]
