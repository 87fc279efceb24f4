"""The figures of docs/results.md: the model alone and every kind of kNN-MT, on two domains.

    python benchmarks/it_text.py --output results/it.pt-en.tsv.gz
    python benchmarks/results.py --it-text results/it.pt-en.tsv.gz --folder results --into docs/results.md

Each domain is split into train, dev and test.  A datastore is built of train, with our index and with the paper's, and
prepared for subsets; k, temperature and weight of each system are tuned on dev; all systems translate test, and are
timed in turns.  Every figure is written to results.json as soon as it is there: a run that was killed resumes.
"""

from __future__ import annotations

from knn_seq.runtime.environment import limit_spinning

limit_spinning()  # before torch is imported

import argparse
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from figures import measuring_conditions, write_figures
from results_tables import STEPS, section
from rounds import rates

from knn_seq import Datastore, KnnSeqError, Translator
from knn_seq.build import pipeline
from knn_seq.corpus import SentencePair, open_corpus, split_corpus
from knn_seq.demo.run import write_tsv
from knn_seq.evaluate import compare
from knn_seq.metrics import METRICS, Metric
from knn_seq.models import Model, load_model
from knn_seq.settings import ModelSettings
from knn_seq.storage.atomic import read_json, write_json
from knn_seq.tune import tune

SEED = 20
PAPER_INDEX, PAPER_RECIPE, PAPER_NPROBE = "paper", "IVF1024,PQ64", 32
SYSTEMS: dict[str, dict[str, Any]] = {
    "base": {"weight": 0.0},
    "full, the paper's index": {"retriever": "full", "index": PAPER_INDEX, "index_options": {"nprobe": PAPER_NPROBE}},
    "full": {"retriever": "full"},
    "subset": {"retriever": "subset"},
    "memory": {},  # the own settings of the translator that reads one
}


@dataclass(frozen=True)
class Amounts:
    """How much is measured, in sentences if nothing else is said."""

    dev: int
    test: int
    timed: int  # of the test sentences: those that are translated again and again
    train: int | None = None  # sentence pairs at most; None: all
    rounds: int = 7
    confirmed: int = 4  # settings that tuning decodes with


# A verse has about three times as many tokens as what a program says.
AMOUNTS = {"bible": Amounts(dev=200, test=500, timed=96), "it": Amounts(dev=400, test=1000, timed=320)}
QUICK = Amounts(dev=60, test=100, timed=64, train=3000, rounds=1, confirmed=2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--domains", nargs="+", choices=AMOUNTS, default=list(AMOUNTS))
    parser.add_argument("--it-text", type=Path, help="what benchmarks/it_text.py made")
    parser.add_argument("--folder", type=Path, default=Path("results"))
    parser.add_argument("--into", type=Path, help="a page with a place for each domain")
    parser.add_argument("--beam-size", type=int, default=1, help="1, greedy, is how Firefox decodes")
    parser.add_argument("--comet-model", help="score with COMET as well: a checkpoint or its name")
    parser.add_argument("--quick", action="store_true", help="few sentences, to see that everything runs")
    arguments = parser.parse_args()
    try:
        run(arguments)
    except KnnSeqError as error:
        raise SystemExit(str(error)) from error


def run(arguments: argparse.Namespace) -> None:
    if "it" in arguments.domains and arguments.it_text is None:
        raise KnnSeqError("The IT domain needs --it-text: make it with benchmarks/it_text.py, or give --domains bible.")
    metrics: dict[str, Metric] = {"BLEU": METRICS.get("bleu")(), "chrF": METRICS.get("chrf")()}
    if arguments.comet_model:
        options = {"model": arguments.comet_model}
        metrics[f"COMET {Path(arguments.comet_model).name}"] = METRICS.get("comet")(**options)
    for metric in metrics.values():
        metric.require()
    kept = Kept(arguments.folder / "results.json")
    model: Model = load_model(ModelSettings("firefox:pt-en"))
    for name in arguments.domains:
        amounts = QUICK if arguments.quick else AMOUNTS[name]
        pairs, digest = text_of(name, arguments.it_text)
        conditions = measuring_conditions()
        kept.require_same(
            (name, "run"),
            {"commit": conditions["commit"], "text": digest, "beam_size": arguments.beam_size, **vars(amounts)},
        )
        kept.get((name, "conditions"), partial(dict, conditions))
        Domain(name, pairs, arguments.folder / name, model, amounts, arguments.beam_size, kept).measure(metrics)
        write_figures(
            arguments.into, {f"results-{name}": section(kept.figures[name])}, kept.figures[name]["conditions"]
        )


class Kept:
    """Figures in a JSON file, each kept as soon as it is there.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.figures: dict[str, Any] = read_json(path) if path.exists() else {}

    def get(self, names: Sequence[str], make: Callable[[], Any]) -> Any:
        """The figure under these names, made if it is not there yet."""
        *outer, last = names
        if last not in self._group(outer):
            self.put(names, make())
        return self._group(outer)[last]

    def put(self, names: Sequence[str], figure: Any) -> None:
        """Keep a figure, in the place of one that may be there."""
        *outer, last = names
        self._group(outer)[last] = figure
        write_json(self.path, self.figures)

    def add(self, names: Sequence[str], number: float) -> None:
        """Add to a figure that starts at 0."""
        *outer, last = names
        self.put(names, self._group(outer).get(last, 0) + number)

    def require_same(self, names: Sequence[str], value: Any) -> None:
        """Raise a `KnnSeqError` if the figures that are there were measured in another way."""
        if self.get(names, lambda: value) != value:
            raise KnnSeqError(
                f"{self.path} holds figures of another commit, another text or other amounts: choose another --folder."
            )

    def _group(self, names: Sequence[str]) -> dict[str, Any]:
        group = self.figures
        for name in names:
            group = group.setdefault(name, {})
        return group


class Domain:
    """One text, and everything that is measured with it.

    Args:
        name: What its figures are kept under.
        pairs: The text.
        folder: Where its parts and its datastore are.
        model: The model.
        amounts: How much is measured.
        beam_size: Of the decoder.
        kept: The figures.
    """

    def __init__(
        self,
        name: str,
        pairs: Sequence[SentencePair],
        folder: Path,
        model: Model,
        amounts: Amounts,
        beam_size: int,
        kept: Kept,
    ) -> None:
        self.name, self.folder, self.model, self.amounts, self.kept = name, folder, model, amounts, kept
        self.decoding = {"beam_size": beam_size}
        train, self.dev, test = split_corpus(pairs, (amounts.dev, amounts.test), SEED)
        self.train, self.test = train[: amounts.train], test
        self.sources, self.references = [pair.source for pair in test], [pair.target for pair in test]
        for part, text in {"train": self.train, "dev": self.dev, "test": test}.items():
            write_tsv(folder / f"{part}.tsv", text)

    def measure(self, metrics: Mapping[str, Metric]) -> None:
        """Everything that is not kept yet; scores stand under the metrics' names."""
        self._build()
        settings = {name: self._tuned(name) for name in SYSTEMS}
        for name in SYSTEMS:
            self.kept.get((self.name, "systems", name), partial(self._translated, name, settings[name]))
        systems = self.kept.figures[self.name]["systems"]
        translations = {name: systems[name]["translations"] for name in SYSTEMS}
        for label, metric in metrics.items():
            self.kept.get((self.name, "scores", label), partial(self._scored, metric, translations))
        self.kept.get((self.name, "tokens_per_second"), partial(self._timed, settings))

    def _build(self) -> None:
        store = self.folder / "store"
        seconds = (self.name, "seconds")
        with timing_steps(lambda step, taken: self.kept.add((*seconds, step), taken)):
            Datastore.build(store, self.model, self.folder / "train.tsv")
        built = Datastore(store)
        if PAPER_INDEX not in built.manifest.indexes:
            start = time.perf_counter()
            built.add_index(PAPER_RECIPE, PAPER_INDEX)
            self.kept.put((*seconds, "the paper's index"), time.perf_counter() - start)
        if not built.manifest.subset:
            start = time.perf_counter()
            built.prepare_subset("encoder", model=self.model)
            self.kept.put((*seconds, "subsets"), time.perf_counter() - start)
        self.kept.put((self.name, "store"), described(Datastore(store)))
        pairs = {"train": len(self.train), "dev": len(self.dev), "test": len(self.test)}
        self.kept.put((self.name, "sentence_pairs"), pairs)

    @cached_property
    def _with_store(self) -> Translator:
        return Translator(self.folder / "store", self.model)

    @cached_property
    def _with_memory(self) -> Translator:
        """Measured settings, which take seconds, are found once: what is there is not measured again."""
        known = self.kept.figures[self.name].get("tuned", {}).get("memory", {})
        start = time.perf_counter()
        translator = Translator(model=self.model, translation_memory=self.folder / "train.tsv", **known)
        self.kept.get((self.name, "seconds", "memory"), lambda: time.perf_counter() - start)
        return translator

    def _translator(self, system: str) -> Translator:
        return self._with_memory if system == "memory" else self._with_store

    def _tuned(self, system: str) -> dict[str, Any]:
        """The settings of a system, the best for the dev set."""
        given = SYSTEMS[system]
        if system == "base":
            return given | self.decoding

        def best() -> dict[str, Any]:
            print(f"{self.name}: tune {system}", flush=True)
            start = time.perf_counter()
            sources, references = [pair.source for pair in self.dev], [pair.target for pair in self.dev]
            options = {"confirm": self.amounts.confirmed, **given, **self.decoding}
            tuning = tune(self._translator(system), sources, references, **options)
            self.kept.put((self.name, "seconds", f"tune {system}"), time.perf_counter() - start)
            print(tuning.table(), flush=True)
            return tuning.chosen

        chosen: dict[str, Any] = self.kept.get((self.name, "tuned", system), best)
        return chosen | self.decoding

    def _translated(self, system: str, settings: dict[str, Any]) -> dict[str, Any]:
        """Translations, shares of the time and share of changed tokens; scores need all systems."""
        comparison = compare(self._translator(system), self.sources, self.references, {system: settings}, metrics=())
        return comparison.systems[0].to_dict()

    def _scored(self, metric: Metric, translations: dict[str, list[str]]) -> dict[str, Any]:
        scores = metric.scores(translations, self.references, self.sources)
        return {name: score._asdict() for name, score in scores.items()}

    def _timed(self, settings: dict[str, dict[str, Any]]) -> dict[str, list[float]]:
        sources = self.sources[: self.amounts.timed]

        def tokens(name: str) -> int:
            translations = self._translator(name).translate(sources, **settings[name])
            return sum(len(translation.tokens) for translation in translations)

        print(f"{self.name}: {self.amounts.rounds} rounds of {len(sources)} sentences", flush=True)
        return rates({name: partial(tokens, name) for name in SYSTEMS}, self.amounts.rounds)


@contextmanager
def timing_steps(on_step: Callable[[str, float], None]) -> Iterator[None]:
    """Tell how many seconds each step of a build takes, while this lasts."""
    originals = {name: getattr(pipeline, name) for name in STEPS}

    def timed(name: str, *arguments: Any, **named: Any) -> Any:
        start = time.perf_counter()
        try:
            return originals[name](*arguments, **named)
        finally:
            on_step(STEPS[name], time.perf_counter() - start)

    for name in STEPS:
        setattr(pipeline, name, partial(timed, name))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(pipeline, name, original)


def described(store: Datastore) -> dict[str, Any]:
    """What a datastore holds, and the bytes of it on disk."""
    manifest = store.manifest
    subset = [store.path / folder for folder in manifest.folders() if not folder.startswith(("index/", "segments/"))]
    base = store.base
    default = str(manifest.default_index)
    return {
        "entries": len(store),
        "dimension": manifest.keys.dimension,
        "indexes": {
            "ours": manifest.indexes[default].recipe,
            "the paper's": f"{PAPER_RECIPE}, nprobe {PAPER_NPROBE}",
        },
        "subset": {name: getattr(manifest.subset, name) for name in ("sentence_search", "codes")},
        "bytes": {
            "text and tokens": sum(map(bytes_of, (base.text_path, base.sources_path, base.values_path))),
            "keys": bytes_of(base.keys_path),
            "index": bytes_of(store.index_folder(default)),
            "the paper's index": bytes_of(store.index_folder(PAPER_INDEX)),
            "subsets": sum(map(bytes_of, subset)),
        },
    }


def bytes_of(path: Path) -> int:
    """Of a file, of all files of a folder, or 0 if there is nothing."""
    if path.is_dir():
        return sum(map(bytes_of, path.iterdir()))
    return path.stat().st_size if path.exists() else 0


def text_of(domain: str, it_text: Path) -> tuple[list[SentencePair], str]:
    """The sentence pairs of a domain, and a hash of them."""
    with as_file(files("knn_seq.demo") / "bible.pt-en.tsv.gz") as bible:
        corpus = open_corpus(bible if domain == "bible" else it_text)
        pairs = [line for line in corpus if isinstance(line, SentencePair)]
    text = "".join(f"{pair.source}\t{pair.target}\n" for pair in pairs)
    return pairs, hashlib.sha256(text.encode()).hexdigest()


if __name__ == "__main__":
    main()
