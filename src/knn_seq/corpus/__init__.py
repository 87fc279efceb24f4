"""Parallel text in, one stream of sentence pairs out, and the way back; a file per format."""

from knn_seq.corpus.base import CORPUS_FORMATS, CorpusReader
from knn_seq.corpus.corpus import Corpus
from knn_seq.corpus.lines import LineReader
from knn_seq.corpus.opening import CorpusLike, open_corpus
from knn_seq.corpus.pair import BadPair, SentencePair, make_pair
from knn_seq.corpus.split import split_corpus
from knn_seq.corpus.writers import PAIR_WRITERS, PairWriter

__all__ = [
    "CORPUS_FORMATS",
    "PAIR_WRITERS",
    "BadPair",
    "Corpus",
    "CorpusLike",
    "CorpusReader",
    "LineReader",
    "PairWriter",
    "SentencePair",
    "make_pair",
    "open_corpus",
    "split_corpus",
]
