"""The figures of docs/results.md: the model alone and every kind of kNN-MT, on four domains.

    python benchmarks/results.py --domains bible it office-help manuals --into docs/results.md

A datastore is built of each domain, with our index, the paper's and one with OPQ, prepared for subsets, and pruned.
`fixed` is tuned on dev; what is trained is trained on the datastore's own sentences, and sees no dev set.  All systems
translate test piece by piece in turns, which gives scores and speed at once.  Greedy, batches of 32.  Every figure is
kept as soon as it is there: a run that was killed resumes.
"""

from __future__ import annotations

from knn_seq.runtime.environment import limit_spinning

limit_spinning()  # before torch is imported

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from domains import Domain, domain_arguments, domain_of, firefox_model, kept_figures, run_script, text_hash
from figures import measuring_conditions, write_figures
from kept import Kept
from results_tables import section

from knn_seq import Datastore, Translator
from knn_seq.metrics import METRICS, Metric
from knn_seq.models import Model

PAPER_INDEX, PAPER_RECIPE, PAPER_NPROBE = "paper", "IVF1024,PQ64", 32
OPQ_INDEX, OPQ_RECIPE = "opq", "OPQ64,IVF1024,PQ64"
TRAINED = ("adaptive", "robust", "kster")
METHOD, KEEP = "known", 0.6  # of the pruned datastore
PIECES = 4  # of a test set: in each, systems take turns
WARM_UP = 4  # sentences that do not count
BASE = "base"


def main() -> None:
    parser = domain_arguments(__doc__)
    parser.add_argument("--comet-model", help="score with COMET as well: a checkpoint or its name")
    run_script(run, parser.parse_args())


def run(arguments: argparse.Namespace) -> None:
    metrics: dict[str, Metric] = {"BLEU": METRICS.get("bleu")(), "chrF": METRICS.get("chrf")()}
    if arguments.comet_model:
        options = {"model": arguments.comet_model}
        metrics[f"COMET {Path(arguments.comet_model).name}"] = METRICS.get("comet")(**options)
    for metric in metrics.values():
        metric.require()
    model, unquantized = firefox_model(), firefox_model("float32")
    for name in arguments.domains:
        domain = domain_of(name, arguments, model)
        kept = kept_figures(name, __file__, arguments)
        kept.get(("conditions",), measuring_conditions)
        kept.require_same(("run",), {"train": text_hash(domain.train), "test": domain.test.sources})
        Measuring(domain, unquantized, kept).measure(metrics)
        write_figures(arguments.into, {f"results-{name}": section(kept.figures)}, kept.figures["conditions"])


class Measuring:
    """Everything that is measured of one domain.

    Args:
        domain: The domain.
        unquantized: The model in float32.
        kept: The figures.
    """

    def __init__(self, domain: Domain, unquantized: Model, kept: Kept) -> None:
        self.domain, self.unquantized, self.kept = domain, unquantized, kept

    def measure(self, metrics: Mapping[str, Metric]) -> None:
        """Everything that is not kept yet; scores stand under the metrics' names."""
        self._prepare()
        systems = self.systems()
        for piece, sources in enumerate(self._pieces()):
            self.kept.get(("pieces", str(piece)), partial(in_turns, systems, sources, backwards=piece % 2 == 1))
        pieces = list(self.kept.figures["pieces"].values())
        outputs = {name: [text for piece in pieces for text in piece[name]["texts"]] for name in systems}
        for label, metric in metrics.items():
            self.kept.get(("scores", label), partial(self._scored, metric, outputs))
        self.kept.put(("speeds",), {name: [piece[name]["tokens_per_second"] for piece in pieces] for name in systems})
        self.kept.put(("store",), described(self.domain))
        self.kept.put(("made",), self.domain.kept.figures)

    def systems(self) -> dict[str, tuple[Callable[[], Translator], dict[str, Any]]]:
        """What translates, and with which settings; the first is what all others are compared with."""
        domain = self.domain
        in_paper = {"index": PAPER_INDEX, "index_options": {"nprobe": PAPER_NPROBE}}
        as_in_paper = domain.tuned(**in_paper)

        def store() -> Translator:
            return domain.translator

        return {
            BASE: (store, {"weight": 0.0}),
            "base, float32": (lambda: self._float32, {"weight": 0.0}),
            "full, the paper's index, `fixed`": (store, as_in_paper),
            "full, the paper's index with OPQ, `fixed`": (store, {**as_in_paper, "index": OPQ_INDEX}),
            "full, `fixed`": (store, domain.tuned()),
            **{f"full, `{name}`": (store, {"combiner": name}) for name in ("learned", *TRAINED)},
            "full, pruned to 0.6, `learned`": (lambda: self._pruned, {}),
            "subset, `learned`": (store, {"retriever": "subset"}),
            "memory, `learned`": (lambda: domain.memory, {}),
        }

    @cached_property
    def _pruned(self) -> Translator:
        return Translator(self.domain.pruned(METHOD, KEEP), self.domain.model, beam_size=1)

    @cached_property
    def _float32(self) -> Translator:
        """The datastore's keys are not asked."""
        return Translator(self.domain.store, self.unquantized, beam_size=1)

    def _prepare(self) -> None:
        kept = self.domain.kept
        self.domain.add_index(PAPER_RECIPE, PAPER_INDEX)
        self.domain.add_index(OPQ_RECIPE, OPQ_INDEX)
        self.domain.prepare_subset()
        if "trained" not in kept.figures:
            with kept.timing(f"training of {', '.join(TRAINED)}"):
                self.domain.translator.train(TRAINED, as_default=False)
            kept.put(("trained",), list(TRAINED))

    def _pieces(self) -> list[list[str]]:
        sources = self.domain.test.sources
        size = -(-len(sources) // PIECES)
        return [sources[start : start + size] for start in range(0, len(sources), size)]

    def _scored(self, metric: Metric, outputs: dict[str, list[str]]) -> dict[str, Any]:
        test = self.domain.test
        return {name: score._asdict() for name, score in metric.scores(outputs, test.references, test.sources).items()}


def in_turns(
    systems: Mapping[str, tuple[Callable[[], Translator], dict[str, Any]]], sources: Sequence[str], backwards: bool
) -> dict[str, Any]:
    """What each system makes of the same sentences, and its speed; in the other order, if that is wanted."""
    found: dict[str, Any] = {}
    for name in reversed(list(systems)) if backwards else systems:
        opened, options = systems[name]
        translator = opened()
        translator.translate(sources[:WARM_UP], **options)
        start = time.perf_counter()
        outputs = translator.translate(sources, **options)
        tokens = sum(len(output.tokens) for output in outputs)
        found[name] = {
            "texts": [str(output) for output in outputs],
            "tokens_per_second": tokens / (time.perf_counter() - start),
        }
    return found


def described(domain: Domain) -> dict[str, Any]:
    """What a datastore holds, and the bytes of it on disk."""
    store: Datastore = domain.store
    manifest = store.manifest
    subset = [store.path / folder for folder in manifest.folders() if not folder.startswith(("index/", "segments/"))]
    base, default, pruned = store.base, str(manifest.default_index), domain.folder / f"{METHOD}-{KEEP:g}"
    return {
        "sentences": {"train": len(domain.train), "dev": len(domain.dev.sources), "test": len(domain.test.sources)},
        "near_duplicates": domain.near_duplicates,
        "entries": len(store),
        "dimension": manifest.keys.dimension,
        "recipe": manifest.indexes[default].recipe,
        "subset": {name: getattr(manifest.subset, name) for name in ("sentence_search", "codes")},
        "bytes": {
            "text and tokens": sum(map(bytes_of, (base.text_path, base.sources_path, base.values_path))),
            "keys": bytes_of(base.keys_path),
            "index": bytes_of(store.index_folder(default)),
            f"index {PAPER_RECIPE}": bytes_of(store.index_folder(PAPER_INDEX)),
            f"index {OPQ_RECIPE}": bytes_of(store.index_folder(OPQ_INDEX)),
            "subsets": sum(map(bytes_of, subset)),
            f"pruned by {METHOD} to {KEEP:g}": bytes_of(pruned),
        },
    }


def bytes_of(path: Path) -> int:
    """Of a file, of all files of a folder, or 0 if there is nothing."""
    if path.is_dir():
        return sum(map(bytes_of, path.iterdir()))
    return path.stat().st_size if path.exists() else 0


if __name__ == "__main__":
    main()
