"""The curves of docs/results.md: BLEU against the size of a datastore, k, subsets, pruning, recall; speed against size.

    python benchmarks/curves.py --into docs/results.md
    python benchmarks/curves.py --largest 1m --into docs/results.md      # without a datastore of 10 million entries

Quality is that of one domain, with the first sentences of its test set; greedy, batches of 32.  Datastores for speed
are made of the Bible's complete text, beyond a million entries of jittered copies of its keys.  Every point is kept as
soon as it is there.
"""

from __future__ import annotations

from knn_seq.runtime.environment import limit_spinning

limit_spinning()  # before torch is imported

import argparse
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from domains import Domain, domain_arguments, domain_of, firefox_model, kept_figures, run_script
from figures import measuring_conditions, write_figures
from line_plot import curves_folder, image, write_lines
from results import PAPER_INDEX, PAPER_NPROBE, PAPER_RECIPE, in_turns
from rounds import SPEED_FOLDER
from speed_models import ENTRIES, sized_store, speed_model

from knn_seq import Datastore, Translator
from knn_seq.demo.run import write_tsv
from knn_seq.metrics.bleu import bleu

SENTENCES, QUICK_SENTENCES, TIMED = 250, 8, 96  # of the test set
METHOD, QUERIES = "known", 256  # of pruning; that recall is measured with


class Points(NamedTuple):
    """Where quality is measured."""

    shares: tuple[float, ...]  # of the datastore's sentences; all of them are there
    ks: tuple[int, ...]
    subsets: tuple[int, ...]
    kept: tuple[float, ...]  # of the entries
    probed: tuple[int, ...]


POINTS = Points((0.01, 0.03, 0.1, 0.3), (1, 4, 8, 16, 32), (8, 32, 128, 512), (0.3, 0.6), (1, 2, 4, 8, 32))
QUICK_POINTS = Points((0.3,), (1, 8), (8, 32), (0.6,), (1, 8))


class Curve(NamedTuple):
    """A picture, and how each of its points is measured."""

    labels: tuple[str, str]
    lines: Mapping[str, Mapping[str, Callable[[], tuple[float, float]]]]  # by the names of the line and of the point
    logarithmic: bool = True


def main() -> None:
    parser = domain_arguments(__doc__)
    parser.add_argument("--largest", choices=ENTRIES, default="10m", help="datastore whose speed is measured")
    run_script(run, parser.parse_args())


def run(arguments: argparse.Namespace) -> None:
    model = firefox_model()
    for name in arguments.domains:
        domain = domain_of(name, arguments, model)
        amounts = (QUICK_SENTENCES, QUICK_POINTS) if arguments.quick else (SENTENCES, POINTS)
        measuring = Measuring(domain, *amounts)
        kept = kept_figures(f"curves-{name}", __file__, arguments)
        conditions = kept.get(("conditions",), measuring_conditions)
        base = kept.get(("base",), lambda own=measuring: own.bleu(own.domain.translator, weight=0.0))  # type: ignore[misc]
        curves = {**measuring.curves(), "speed": speed_curve(arguments)}
        pictures = []
        for what, curve in curves.items():
            lines = {
                line: [kept.get((what, line, point), measure) for point, measure in points.items()]
                for line, points in curve.lines.items()
            }
            path = curves_folder(arguments.into, arguments.results) / f"{name}-{what}.svg"
            level = None if what == "speed" else ("the model alone", base)
            write_lines(path, curve.labels, lines, level=level, logarithmic=curve.logarithmic)
            pictures.append(image(path, f"{curve.labels[1]} against {curve.labels[0]}"))
        size = len(measuring.test.sources)
        title = f"{name}: {len(domain.train):,} sentence pairs, {len(domain.store):,} entries, {size} test sentences."
        write_figures(arguments.into, {f"curves/{name}": "\n\n".join([title, *pictures])}, conditions)


class Measuring:
    """The points of all curves of one domain.

    Args:
        domain: The domain.
        sentences: Of its test set.
        points: Where quality is measured.
    """

    def __init__(self, domain: Domain, sentences: int, points: Points) -> None:
        self.domain, self.test, self.points = domain, domain.test.first(sentences), points

    def bleu(self, translator: Translator, **options: Any) -> float:
        """BLEU of the test set."""
        return bleu(translator.translate(self.test.sources, **options), self.test.references).value

    def curves(self) -> dict[str, Curve]:
        """All that show quality."""
        own = {"combiner": "learned"}
        all_of_it = partial(self._at, len(self.domain.train), own)
        kept = {f"{share:g}": partial(self._pruned, share) for share in self.points.kept} | {
            "1": partial(self._at, 1.0, own)
        }
        return {
            "size": Curve(
                ("sentence pairs in the datastore", "BLEU"),
                {"learned": {f"{s:g}": partial(self._of_size, s) for s in self.points.shares} | {"1": all_of_it}},
            ),
            "k": Curve(
                ("k", "BLEU"),
                {
                    "learned": {f"{k}": partial(self._at, k, {**own, "k": k}) for k in self.points.ks},
                    "fixed, tuned": {f"{k}": partial(self._fixed_at, k) for k in self.points.ks},
                },
            ),
            "subset": Curve(("sentences of a subset", "BLEU"), {"learned": dict(self._subsets())}),
            "pruning": Curve(("share of the entries that stays", "BLEU"), {"known, learned": kept}, False),
            "recall": Curve(
                ("recall of the 64 nearest entries", "BLEU"),
                {name: dict(points) for name, points in self._recalls()},
                False,
            ),
        }

    def _at(self, x: float, options: dict[str, Any]) -> tuple[float, float]:
        return x, self.bleu(self.domain.translator, **options)

    def _fixed_at(self, k: int) -> tuple[float, float]:
        return self._at(k, {**self.domain.tuned(), "k": k})

    def _of_size(self, share: float) -> tuple[float, float]:
        """The datastore of the first sentences."""
        folder, count = self.domain.folder / f"share-{share:g}", round(share * len(self.domain.train))
        write_tsv(folder / "train.tsv", self.domain.train[:count])
        store = Datastore.build(folder / "store", self.domain.model, folder / "train.tsv")
        return count, self.bleu(Translator(store, self.domain.model, beam_size=1), combiner="learned")

    def _pruned(self, share: float) -> tuple[float, float]:
        store = self.domain.pruned(METHOD, share)
        return share, self.bleu(Translator(store, self.domain.model, beam_size=1))

    def _subsets(self) -> Iterator[tuple[str, Callable[[], tuple[float, float]]]]:
        self.domain.prepare_subset()
        for size in self.points.subsets:
            options = {"retriever": "subset", "subset_size": size}
            yield f"{size}", partial(self._at, size, options)

    def _recalls(self) -> Iterator[tuple[str, Iterator[tuple[str, Callable[[], tuple[float, float]]]]]]:
        """Of our index, unless it is exact, and of the paper's; each with `fixed`, tuned for it."""
        store = self.domain.store
        if "IVF" in str(store.manifest.indexes[str(store.manifest.default_index)].recipe):
            yield "our index", self._probed(None, lambda: self.domain.tuned())
        self.domain.add_index(PAPER_RECIPE, PAPER_INDEX)
        in_paper = {"index": PAPER_INDEX, "index_options": {"nprobe": PAPER_NPROBE}}
        yield "the paper's index", self._probed(PAPER_INDEX, lambda: self.domain.tuned(**in_paper))

    def _probed(
        self, index: str | None, tuned: Callable[[], dict[str, Any]]
    ) -> Iterator[tuple[str, Callable[[], tuple[float, float]]]]:
        def point(lists: int) -> tuple[float, float]:
            options = {"nprobe": lists}
            recall = self.domain.store.check_index(index, queries=QUERIES, index_options=options).recall
            return self._at(recall, {**tuned(), "index_options": options})

        for lists in self.points.probed:
            yield f"{lists}", partial(point, lists)


def speed_curve(arguments: argparse.Namespace) -> Curve:
    """Tokens a second against the size of a datastore."""
    sizes = list(ENTRIES)[: list(ENTRIES).index("tiny" if arguments.quick else arguments.largest) + 1]
    timed = QUICK_SENTENCES if arguments.quick else TIMED
    systems: dict[str, dict[str, Any]] = {
        "the model alone": {"weight": 0.0},
        "full": {"retriever": "full"},
        "subset": {"retriever": "subset"},
    }
    found: dict[str, tuple[int, dict[str, Any]]] = {}  # of a size: entries, and what all systems did

    def measured(size: str) -> tuple[int, dict[str, Any]]:
        if size not in found:
            model = speed_model("firefox")
            store, test = sized_store(SPEED_FOLDER, "firefox", model, size)
            translator = Translator(store, model, beam_size=1)
            opened = {name: (lambda: translator, options) for name, options in systems.items()}
            found[size] = len(store), in_turns(opened, [pair.source for pair in test[:timed]], backwards=False)
        return found[size]

    def point(size: str, system: str) -> tuple[float, float]:
        entries, outputs = measured(size)
        return entries, outputs[system]["tokens_per_second"]

    lines = {system: {size: partial(point, size, system) for size in sizes} for system in systems}
    return Curve(("entries of the datastore", "tokens a second"), lines)


if __name__ == "__main__":
    main()
