"""Two domains to measure with, each split the same way for every script: a datastore, a dev set, a test set.

The Bible comes with the package; what programs say is made by `it_text.py`.
"""

from __future__ import annotations

import argparse
import gzip
import random
from pathlib import Path
from typing import NamedTuple

from figures import commit
from results import SEED, text_of

from knn_seq import Datastore
from knn_seq.corpus import SentencePair, open_corpus, split_corpus
from knn_seq.demo.run import write_tsv
from knn_seq.models import Model

GENERAL = Path(__file__).with_name("general.pt-en.tsv")
GAMES = ("aisleriot", "gbrainy", "gnome-chess", "gnome-robots", "gnome-mines", "ksudoku", "quadrapassel", "ufoai-misc")
DEV, TEST, STORED, GAME_STRINGS = 200, 500, 30, 250
SENTENCES = {"bible": 12_000, "it": 40_000}  # of a datastore: half a million entries each


class TestSet(NamedTuple):
    """Sentences and their references."""

    name: str
    sources: list[str]
    references: list[str]

    @classmethod
    def of(cls, name: str, pairs: list[SentencePair]) -> TestSet:
        """A test set of sentence pairs."""
        return cls(name, [pair.source for pair in pairs], [pair.target for pair in pairs])


class Domain(NamedTuple):
    """A domain, and what is measured with it."""

    name: str
    store: Datastore
    dev: TestSet
    test: TestSet


def domain_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command lines of all scripts have that measure with domains."""
    parser.add_argument("--domains", nargs="+", choices=SENTENCES, default=["bible"])
    parser.add_argument("--it-text", type=Path, help="what benchmarks/it_text.py made")
    parser.add_argument("--folder", type=Path, default=Path("results/domains"), help="datastores are made there")
    parser.add_argument("--into", type=Path, help="a page with a place for each domain")


def domain_of(name: str, arguments: argparse.Namespace, model: Model) -> Domain:
    """A domain with its datastore, which is built unless the same commit has built it before."""
    it_text, path = arguments.it_text, arguments.folder / f"{name}-{commit()}"
    pairs = it_pairs(it_text, of_games=False) if name == "it" else text_of(name, it_text)[0]
    train, dev, test = split_corpus(pairs, (DEV, TEST), SEED)
    write_tsv(path / "train.tsv", train[: SENTENCES[name]])
    store = Datastore.build(path / "store", model, path / "train.tsv")
    return Domain(name, store, TestSet.of("dev", dev), TestSet.of(name, test))


def others(it_text: Path | None) -> list[TestSet]:
    """Text of other domains."""
    general = [pair for pair in open_corpus(GENERAL) if isinstance(pair, SentencePair)]
    found = [TestSet.of("general", general)]
    if it_text is not None:
        games = it_pairs(it_text, of_games=True)
        random.Random(SEED).shuffle(games)
        found.append(TestSet.of("games", games[:GAME_STRINGS]))
    return found


def it_pairs(it_text: Path, of_games: bool) -> list[SentencePair]:
    """What programs say, those that are games or all others; the third column is package=version."""
    lines = gzip.decompress(it_text.read_bytes()).decode().splitlines()
    rows = [line.split("\t") for line in lines]
    return [
        SentencePair(source, target, name)
        for source, target, name in rows
        if (name.partition("=")[0] in GAMES) == of_games
    ]


def stored(store: Datastore) -> TestSet:
    """Some of the sentence pairs of a datastore."""
    numbers = random.Random(SEED).sample(range(len(store.texts)), STORED)
    texts = [store.texts[number] for number in numbers]
    return TestSet("stored", [source for source, _ in texts], [target for _, target in texts])
