"""Parallel text in, one stream of sentence pairs out; a file per format."""

from knn_seq.corpus.base import CORPUS_FORMATS, CorpusReader
from knn_seq.corpus.corpus import Corpus, CorpusLike, open_corpus
from knn_seq.corpus.lines import LineReader
from knn_seq.corpus.pair import BadPair, SentencePair, make_pair
from knn_seq.corpus.split import split_corpus
from knn_seq.corpus.windows import Window, WindowReader, open_text

__all__ = [
    "CORPUS_FORMATS",
    "BadPair",
    "Corpus",
    "CorpusLike",
    "CorpusReader",
    "LineReader",
    "SentencePair",
    "Window",
    "WindowReader",
    "make_pair",
    "open_corpus",
    "open_text",
    "split_corpus",
]
