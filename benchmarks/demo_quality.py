"""What neighbours bring, on the demo's text and datastore: the quality of every retriever.

The settings are those that the build, or the opening of the translation memory, measured by itself: nothing is tuned.
Greedy, as Firefox decodes; for speed see `demo_speed.py`.

    python benchmarks/demo_quality.py --into README.md
"""

from __future__ import annotations

from knn_seq.runtime.environment import limit_spinning

limit_spinning()  # before torch is imported

from pathlib import Path
from typing import Any

from figures import markdown, write_figures
from measured_code import digest
from rounds import Options, command_line, options_of

from knn_seq import Datastore, Translator
from knn_seq.corpus import SentencePair
from knn_seq.demo.corpus import load_demo_corpus
from knn_seq.demo.run import MODEL, TRAINING_SENTENCES, write_tsv
from knn_seq.evaluate.comparison import shown_p_value
from knn_seq.metrics import METRICS
from knn_seq.models import Model, load_model
from knn_seq.settings import ModelSettings

METRIC_NAMES = {"BLEU": "bleu", "chrF": "chrf"}
QUICK_SENTENCES, QUICK_TEST = 300, 16
LABELS = {
    "base": "the model alone",
    "full": "kNN-MT, full search",
    "subset": "subset kNN-MT",
    "memory": "translation memory, nothing built",
}
Systems = dict[str, tuple[Translator, dict[str, Any]]]


def main() -> None:
    arguments = command_line(__doc__).parse_args()
    options = options_of(arguments)
    model = load_model(ModelSettings(MODEL))
    store, test = demo_store(arguments.folder, model, options)
    memory = Translator(model=model, translation_memory=store.path.parent / "train.tsv", beam_size=1)
    searching = Translator(store, model, beam_size=1)
    systems: Systems = {
        "base": (searching, {"weight": 0.0}),
        "full": (searching, {"retriever": "full"}),
        "subset": (searching, {"retriever": "subset"}),
        "memory": (memory, {}),
    }
    title = (
        f"Bible, Portuguese to English: {store.manifest.counts.sentences:,} sentence pairs, {len(store):,} entries, "
        f"{len(test):,} test sentences, greedy; settings as the build measured them. p is of a paired bootstrap."
    )
    text = f"{title}\n\n{table(systems, test)}"
    write_figures(arguments.into, {"readme-results": text})


def demo_store(folder: Path, model: Model, options: Options) -> tuple[Datastore, list[SentencePair]]:
    """The demo's datastore, prepared for subsets, and its test sentences."""
    corpus, count = load_demo_corpus(), QUICK_SENTENCES if options.quick else TRAINING_SENTENCES
    path = folder / f"demo-{count}-{digest(('demo_quality.py',))}"  # its settings were measured by the same code
    write_tsv(path / "train.tsv", corpus.train[:count])
    store = Datastore.build(path / "store", model, path / "train.tsv")
    if not store.manifest.subset:
        store.prepare_subset(model=model)
    return Datastore(store.path), corpus.test[: QUICK_TEST if options.quick else None]


def table(systems: Systems, test: list[SentencePair]) -> str:
    """Scores with their significance."""
    sources, references = [pair.source for pair in test], [pair.target for pair in test]
    outputs = {name: translator.translate(sources, **own) for name, (translator, own) in systems.items()}
    scores = {label: METRICS.get(name)().scores(outputs, references, sources) for label, name in METRIC_NAMES.items()}
    rows = []
    for name, label in LABELS.items():
        cells = [f"{scores[metric][name].value:.1f}" for metric in scores]
        p_value = scores["BLEU"][name].p_value
        shown = "" if p_value is None else shown_p_value(p_value)
        rows.append([label, *cells, shown])
    return markdown(["", *scores, "p (BLEU)"], rows)


if __name__ == "__main__":
    main()
