"""Four domains to measure with, each split the same way for every script: a datastore, a dev set, a test set.

The Bible comes with the package; the text of the others is made by `it_text.py`, `office_help_text.py` and
`manuals_text.py`.  A datastore is built once for each version of the code, by whichever script needs it first; what its
steps took, and what was tuned on dev, is kept beside it.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, NamedTuple

from debian_text import TEXT_FOLDER
from kept import Kept
from measured_code import digest
from near_duplicates import without_near_duplicates

from knn_seq import Datastore, KnnSeqError, Translator
from knn_seq.build import pipeline
from knn_seq.corpus import SentencePair, open_corpus, split_corpus
from knn_seq.demo.run import MODEL, write_tsv
from knn_seq.evaluate.stored_targets import stored_sample, stored_targets
from knn_seq.models import Model, load_model
from knn_seq.settings import ModelSettings
from knn_seq.tune import tune

SEED = 20
GENERAL = Path(__file__).with_name("general.pt-en.tsv")
GAMES = ("aisleriot", "gbrainy", "gnome-chess", "gnome-robots", "gnome-mines", "ksudoku", "quadrapassel", "ufoai-misc")
GAME_STRINGS, STORED = 250, 30
SENTENCES = {"bible": 12_000, "it": 20_000, "office-help": 12_000, "manuals": 12_000}  # of a datastore, at most
DEV, TEST, CONFIRMED = 200, 500, 2
QUICK_SENTENCES, QUICK_DEV, QUICK_TEST = 400, 12, 16
SPARE = 2  # times as many sentences are held out as are needed: near-duplicates go
STEPS = {  # of a build, as functions of its module
    "store_text": "text and tokens",
    "store_keys": "keys",
    "store_index": "index",
    "examples_for": "search for training",
    "train": "combiner",
}
TUNING = "tuning `fixed` on dev"


class ParallelText(NamedTuple):
    """Sentences and their references."""

    name: str
    sources: list[str]
    references: list[str]

    @classmethod
    def of(cls, name: str, pairs: Sequence[SentencePair]) -> ParallelText:
        """A test set of sentence pairs."""
        return cls(name, [pair.source for pair in pairs], [pair.target for pair in pairs])

    def first(self, count: int) -> ParallelText:
        """Some of it."""
        return ParallelText(self.name, self.sources[:count], self.references[:count])


@dataclass(frozen=True)
class Domain:
    """A domain, and what is measured with it.

    Args:
        name: Its name.
        folder: Where its datastore and what is known of it are.
        model: The model.
        train: What the datastore is made of, in random order.
        dev: To tune with.
        test: To measure with.
        near_duplicates: How many sentences of dev and test were left out.
    """

    name: str
    folder: Path
    model: Model
    train: list[SentencePair]
    dev: ParallelText
    test: ParallelText
    near_duplicates: int

    @classmethod
    def split(
        cls,
        name: str,
        pairs: Sequence[SentencePair],
        folder: Path,
        model: Model,
        amounts: tuple[int, int, int],
    ) -> Domain:
        """Split text into so many sentences for the datastore, for dev and for test."""
        sentences, *sizes = amounts
        train, dev, test = split_corpus(pairs, (SPARE * sizes[0], SPARE * sizes[1]), SEED)
        random.Random(SEED).shuffle(train)
        train, others = train[:sentences], []
        seen, dropped = [pair.source for pair in train], 0
        for part, size in zip((dev, test), sizes, strict=True):
            fit = without_near_duplicates([pair.source for pair in part], seen)
            dropped += len(part) - len(fit)
            others.append([part[number] for number in fit[:size]])
            seen = [*seen, *(pair.source for pair in others[-1])]  # dev is not to be in test either
        write_tsv(folder / "train.tsv", train)
        return cls(
            name, folder, model, train, ParallelText.of("dev", others[0]), ParallelText.of(name, others[1]), dropped
        )

    @cached_property
    def kept(self) -> Kept:
        """What is known of the datastore: seconds, the processor's seconds, tuned settings."""
        return Kept(self.folder / "figures.json")

    @cached_property
    def store(self) -> Datastore:
        """Its datastore, built unless that was done before."""
        with timing_steps(self.kept):
            return Datastore.build(self.folder / "store", self.model, self.folder / "train.tsv")

    @cached_property
    def translator(self) -> Translator:
        """Translates with the datastore; greedy."""
        return Translator(self.store, self.model, beam_size=1)

    def tuned(self, **options: Any) -> dict[str, Any]:
        """The settings of `fixed` that are best for the dev set, for some index."""

        def best() -> dict[str, Any]:
            translator = self.translator  # what building takes is not to count
            with self.kept.timing(TUNING + ", the paper's index" * bool(options)):
                return tune(
                    translator,
                    self.dev.sources,
                    self.dev.references,
                    combiner="fixed",
                    confirm=CONFIRMED,
                    **options,
                ).chosen

        chosen: dict[str, Any] = self.kept.get(("tuned", options.get("index", "default")), best)
        return chosen

    def add_index(self, recipe: str, name: str) -> None:
        """Give the datastore another index, unless that was done before."""
        if name not in self.store.manifest.indexes:
            with self.kept.timing(f"index {recipe}"):
                self.store.add_index(recipe, name)

    def prepare_subset(self) -> None:
        """Prepare the datastore for subsets, unless that was done before."""
        if not self.store.manifest.subset:
            with self.kept.timing("subsets"):
                self.store.prepare_subset("encoder", model=self.model)

    def pruned(self, method: str, keep: float) -> Datastore:
        """A smaller datastore, made unless that was done before."""
        store, path = self.store, self.folder / f"{method}-{keep:g}"
        with nullcontext() if path.exists() else self.kept.timing(f"pruned by {method} to {keep:g}"):
            return store.prune(path, method, keep, model=self.model)

    @cached_property
    def memory(self) -> Translator:
        """Translates with the same sentences as a translation memory; greedy."""
        with self.kept.timing("memory"):
            return Translator(model=self.model, translation_memory=self.folder / "train.tsv", beam_size=1)

    @cached_property
    def stored(self) -> dict[str, set[str]]:
        """Some of the sources of the datastore, with all targets that it has for each."""
        return stored_targets(self.store.texts, stored_sample(self.store.texts, STORED, SEED))


def domain_arguments(description: str | None, default: Sequence[str] = ("bible",)) -> argparse.ArgumentParser:
    """What the command lines of all scripts have that measure with domains."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--domains", nargs="+", choices=SENTENCES, default=list(default))
    parser.add_argument("--text-folder", type=Path, default=TEXT_FOLDER, help="has NAME.pt-en.tsv.gz of each domain")
    parser.add_argument("--folder", type=Path, default=Path("results/domains"), help="datastores are made there")
    parser.add_argument("--results", type=Path, default=Path("results/results"), help="figures are kept there")
    parser.add_argument("--into", type=Path, help="a page with a place for what is measured")
    parser.add_argument("--quick", action="store_true", help="few sentences: does everything run?")
    return parser


def run_script(run: Callable[[argparse.Namespace], None], arguments: argparse.Namespace) -> None:
    """Run it; what a user can fix ends it with one sentence."""
    try:
        run(arguments)
    except KnnSeqError as error:
        raise SystemExit(str(error)) from error


def firefox_model(dtype: str | None = None) -> Model:
    """The model that all domains are measured with."""
    return load_model(ModelSettings(MODEL, dtype=dtype))


def domain_of(name: str, arguments: argparse.Namespace, model: Model) -> Domain:
    """A domain as the command line says where it is and how much of it is measured."""
    pairs = text_of(name, arguments.text_folder)
    amounts = (SENTENCES[name], DEV, TEST)
    if arguments.quick:
        amounts = (QUICK_SENTENCES, QUICK_DEV, QUICK_TEST)
    folder = arguments.folder / f"{name}-{digest(('domains.py', 'prune'))}{'-quick' * arguments.quick}"
    return Domain.split(name, pairs, folder, model, amounts)


def kept_figures(name: str, script: str, arguments: argparse.Namespace) -> Kept:
    """The figures of a script under some name, as long as what it measures is the same code."""
    code = digest((Path(script).name, "prune"))
    return Kept(arguments.results / f"{name}-{code}{'-quick' * arguments.quick}.json")


def text_of(name: str, text_folder: Path) -> list[SentencePair]:
    """The sentence pairs of a domain; of what programs say, those that are no games."""
    if name == "bible":
        with as_file(files("knn_seq.demo") / "bible.pt-en.tsv.gz") as bible:
            return [pair for pair in open_corpus(bible) if isinstance(pair, SentencePair)]
    pairs = _packed_pairs(name, text_folder)
    return [pair for pair in pairs if pair.place not in GAMES] if name == "it" else pairs


def others(text_folder: Path) -> list[ParallelText]:
    """Text of other domains: general sentences and, if the text of the IT domain is there, what games say."""
    found = [ParallelText.of("general", [pair for pair in open_corpus(GENERAL) if isinstance(pair, SentencePair)])]
    if _path_of("it", text_folder).exists():
        games = [pair for pair in _packed_pairs("it", text_folder) if pair.place in GAMES]
        random.Random(SEED).shuffle(games)
        found.append(ParallelText.of("games", games[:GAME_STRINGS]))
    return found


def text_hash(pairs: Sequence[SentencePair]) -> str:
    """Says whether a text is the same."""
    return hashlib.sha256("".join(f"{pair.source}\t{pair.target}\n" for pair in pairs).encode()).hexdigest()


@contextmanager
def timing_steps(kept: Kept) -> Iterator[None]:
    """Keep how many seconds each step of a build takes, while this lasts."""
    originals = {name: getattr(pipeline, name) for name in STEPS}

    def timed(name: str, *arguments: Any, **named: Any) -> Any:
        with kept.timing(STEPS[name]):
            return originals[name](*arguments, **named)

    for name in STEPS:
        setattr(pipeline, name, partial(timed, name))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(pipeline, name, original)


def build_cpu_seconds(kept: Kept) -> float:
    """What building and training took of the processor's time."""
    return float(sum(kept.figures.get("cpu_seconds", {}).get(step, 0.0) for step in STEPS.values()))


def _path_of(name: str, text_folder: Path) -> Path:
    return text_folder / f"{name}.pt-en.tsv.gz"


def _packed_pairs(name: str, text_folder: Path) -> list[SentencePair]:
    """Of a file with id, Portuguese and English; the place of a pair is the part of its id before an "="."""
    path = _path_of(name, text_folder)
    if not path.exists():
        script = f"{name.replace('-', '_')}_text.py"
        raise KnnSeqError(f"There is no {path}: make it with benchmarks/{script}, or give --text-folder.")
    rows = [line.split("\t") for line in gzip.decompress(path.read_bytes()).decode().splitlines()]
    return [SentencePair(source, target, identifier.partition("=")[0]) for identifier, source, target in rows]
