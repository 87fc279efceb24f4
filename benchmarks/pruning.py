"""What a smaller datastore costs: quality, size and time of every pruning method.

The settings and the combiner are those that the build and the pruning made by themselves.  Greedy, as Firefox decodes.
What is lost is little, so more sentences than those of the test set are translated: any that the datastore lacks.

    python benchmarks/pruning.py --domains bible it --into docs/pruning.md
"""

from __future__ import annotations

from knn_seq.runtime.environment import limit_spinning

limit_spinning()  # before torch is imported

import random
from collections.abc import Sequence
from pathlib import Path

from demo_quality import METRIC_NAMES
from domains import Domain, ParallelText, domain_arguments, domain_of, firefox_model, text_of
from figures import markdown, measuring_conditions, write_figures
from near_duplicates import without_near_duplicates

from knn_seq import Datastore, Translator
from knn_seq.metrics import METRICS
from knn_seq.models import Model
from knn_seq.prune import PRUNING_METHODS
from knn_seq.runtime.sizes import format_bytes

SHARES = (0.6,)
SENTENCES, QUICK_SENTENCES = 1_500, 8


def main() -> None:
    parser = domain_arguments(__doc__)
    parser.add_argument("--keep", type=float, nargs="+", default=SHARES, help="shares of the entries that stay")
    parser.add_argument("--methods", nargs="+", choices=PRUNING_METHODS.names(), default=PRUNING_METHODS.names())
    arguments = parser.parse_args()
    model = firefox_model()
    for name in arguments.domains:
        conditions = measuring_conditions()
        domain = domain_of(name, arguments, model)
        test = unseen(domain, arguments.text_folder, QUICK_SENTENCES if arguments.quick else SENTENCES)
        text = measured(domain, test, arguments.methods, arguments.keep)
        write_figures(arguments.into, {f"pruning/{name}": text}, conditions)


def unseen(domain: Domain, text_folder: Path, count: int) -> ParallelText:
    """Sentences of a domain that are not in its datastore, nor nearly, in random order."""
    stored = [pair.source for pair in domain.train]
    known = set(stored)
    pairs = [pair for pair in text_of(domain.name, text_folder) if pair.source not in known]
    random.Random(0).shuffle(pairs)
    fit = without_near_duplicates([pair.source for pair in pairs[: 2 * count]], stored)
    return ParallelText.of(domain.name, [pairs[number] for number in fit[:count]])


def measured(domain: Domain, test: ParallelText, methods: Sequence[str], shares: Sequence[float]) -> str:
    """The table of a domain."""
    store = domain.store
    stores, seconds = {"all entries": store}, {"all entries": ""}
    for keep in shares:
        for method in methods:
            name = f"`{method}`, {keep:g}"
            stores[name] = domain.pruned(method, keep)
            passed = domain.kept.figures["cpu_seconds"].get(f"pruned by {method} to {keep:g}")
            seconds[name] = "" if passed is None else f"{passed:.0f} s"
    title = (
        f"{domain.name}: {store.manifest.counts.sentences:,} sentence pairs, {len(store):,} entries, "
        f"{len(test.sources):,} other sentences, greedy, full search; each with the combiner that was trained on "
        "itself."
    )
    return f"{title}\n\n{table(stores, seconds, domain.model, test)}"


def table(stores: dict[str, Datastore], seconds: dict[str, str], model: Model, test: ParallelText) -> str:
    """Scores, sizes, and the processor's time that pruning took."""
    sources, references = test.sources, test.references
    first = next(iter(stores.values()))
    outputs = {"the model alone": Translator(first, model, beam_size=1).translate(sources, weight=0.0)}
    outputs |= {
        name: Translator(store, model, beam_size=1).translate(sources, retriever="full")
        for name, store in stores.items()
    }
    scores = {label: METRICS.get(name)().scores(outputs, references, sources) for label, name in METRIC_NAMES.items()}
    rows = []
    for name in outputs:
        own = stores.get(name)
        sizes = ["", "", ""]
        if own is not None:
            sizes = [
                f"{len(own):,}",
                format_bytes(_bytes(own.base.keys_path)),
                format_bytes(_bytes(own.path / "index" / str(own.manifest.default_index))),
            ]
        rows.append([name, *(f"{scores[label][name].value:.2f}" for label in scores), *sizes, seconds.get(name, "")])
    return markdown(["", *scores, "entries", "keys", "index", "pruned in"], rows)


def _bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in (path.rglob("*") if path.is_dir() else [path]) if file.is_file())


if __name__ == "__main__":
    main()
