"""The sentences of a corpus that are similar to a given one."""

from knn_seq.sentences.base import SENTENCES, SentenceSearch
from knn_seq.sentences.lexical import LexicalSearch
from knn_seq.sentences.vectors import VectorSearch

__all__ = ["SENTENCES", "LexicalSearch", "SentenceSearch", "VectorSearch"]
