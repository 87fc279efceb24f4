from __future__ import annotations

from importlib.resources import as_file, files
from typing import NamedTuple

from knn_seq.corpus import SentencePair, open_corpus, split_corpus

DEV, TEST, SEED = 500, 250, 20


class DemoCorpus(NamedTuple):
    """The Bible, Portuguese to English, with no source sentence in two parts."""

    train: list[SentencePair]
    dev: list[SentencePair]
    test: list[SentencePair]


def load_demo_corpus() -> DemoCorpus:
    """The three parts, the same every time."""
    with as_file(files("knn_seq.demo") / "bible.pt-en.tsv.gz") as path:
        pairs = [line for line in open_corpus(path) if isinstance(line, SentencePair)]
    return DemoCorpus(*split_corpus(pairs, (DEV, TEST), SEED))
