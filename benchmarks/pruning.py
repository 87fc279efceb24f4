"""What a smaller datastore costs: quality, size and time of every pruning method, on the demo's text.

The settings are those that the build and the pruning measured by themselves.  Greedy, as Firefox decodes.

    python benchmarks/pruning.py --into docs/pruning.md
"""

from __future__ import annotations

from knn_seq.runtime.environment import limit_spinning

limit_spinning()  # before torch is imported

import time
from pathlib import Path

from demo_quality import METRIC_NAMES, demo_store
from figures import markdown, write_figures
from rounds import command_line, options_of

from knn_seq import Datastore, Translator
from knn_seq.corpus import SentencePair
from knn_seq.demo.run import MODEL
from knn_seq.metrics import METRICS
from knn_seq.models import Model, load_model
from knn_seq.prune import PRUNING_METHODS
from knn_seq.runtime.sizes import format_bytes
from knn_seq.settings import ModelSettings

SHARES = (0.6, 0.4)


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--keep", type=float, nargs="+", default=SHARES, help="shares of the entries that stay")
    arguments = parser.parse_args()
    options = options_of(arguments)
    model = load_model(ModelSettings(MODEL))
    store, test = demo_store(arguments.folder, model, options)
    stores, seconds = {"all entries": store}, {"all entries": ""}
    for keep in arguments.keep:
        for method in PRUNING_METHODS.names():
            name, start = f"`{method}`, {keep:g}", time.monotonic()
            stores[name] = store.prune(store.path.with_name(f"{method}-{keep:g}"), method, keep, model=model)
            seconds[name] = f"{time.monotonic() - start:.0f} s"
    title = (
        f"Bible, Portuguese to English: {store.manifest.counts.sentences:,} sentence pairs, {len(store):,} entries, "
        f"{len(test):,} test sentences, greedy, full search."
    )
    write_figures(arguments.into, {"pruning": f"{title}\n\n{table(stores, seconds, model, test)}"})


def table(stores: dict[str, Datastore], seconds: dict[str, str], model: Model, test: list[SentencePair]) -> str:
    """Scores, sizes, and the time that pruning took."""
    sources, references = [pair.source for pair in test], [pair.target for pair in test]
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
                format_bytes(_bytes(own.path / "index")),
            ]
        rows.append([name, *(f"{scores[label][name].value:.1f}" for label in scores), *sizes, seconds.get(name, "")])
    return markdown(["", *scores, "entries", "keys", "index", "pruned in"], rows)


def _bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in (path.rglob("*") if path.is_dir() else [path]) if file.is_file())


if __name__ == "__main__":
    main()
