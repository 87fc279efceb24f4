"""Parallel text in, one stream of sentence pairs out; a file per format."""

from knn_seq.corpus.base import CORPUS_FORMATS, CorpusReader
from knn_seq.corpus.corpus import Corpus, open_corpus
from knn_seq.corpus.pair import BadLine, SentencePair
from knn_seq.corpus.split import split_corpus

__all__ = ["CORPUS_FORMATS", "BadLine", "Corpus", "CorpusReader", "SentencePair", "open_corpus", "split_corpus"]
