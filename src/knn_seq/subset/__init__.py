"""The keys of some sentences only: codes, tables, and how they are searched."""

from knn_seq.subset.codec import KeyCodec
from knn_seq.subset.padded import PaddedKeys, SentenceKeys
from knn_seq.subset.subset_index import SubsetIndex, Subsets

__all__ = ["KeyCodec", "PaddedKeys", "SentenceKeys", "SubsetIndex", "Subsets"]
