from __future__ import annotations

from pathlib import Path
from typing import Any

from knn_seq.build import build_datastore
from knn_seq.combine import has_own_temperature
from knn_seq.corpus import SentencePair, open_corpus
from knn_seq.datastore import Datastore
from knn_seq.demo.corpus import load_demo_corpus
from knn_seq.evaluate import Comparison, compare
from knn_seq.explain import explain
from knn_seq.explain.text import SENTENCES, labelled
from knn_seq.models import load_model
from knn_seq.runtime.wording import count
from knn_seq.settings import ModelSettings, SearchSettings, with_value
from knn_seq.storage.atomic import write_json
from knn_seq.translator import Translator

MODEL = "firefox:pt-en"
TRAINING_SENTENCES = 12_000  # of some 30,000: the build must not take more than a minute or two on two cores
SHOWN = 5  # test sentences


def run_demo(folder: Path, json_path: Path | None = None) -> dict[str, Any]:
    """Adapt a Portuguese-English model to the Bible, and show what that does.

    Args:
        folder: Where the datastore is built, or found from an earlier run.
        json_path: Where to write the figures.
    """
    corpus = load_demo_corpus()
    train = folder / "train.tsv"
    write_tsv(train, corpus.train[:TRAINING_SENTENCES])
    print(f"Model {MODEL} (Firefox Translations), greedy; domain: the Bible; {len(corpus.test)} held-out verses.")
    model = load_model(ModelSettings(MODEL))
    built = build_datastore(folder / "store", model, open_corpus(train))
    if not built:
        print(f"The datastore in {folder / 'store'} is there from an earlier run; it is used again.")
    store = Datastore(folder / "store")
    search = store.search_settings
    print(
        f"Datastore: {count(store.manifest.counts.sentences, 'sentence pair')}, "
        f"{count(len(store), 'entry', 'entries')}; {settings_in_words(search)}.\n"
    )
    translator = Translator(store, model=model, beam_size=1)  # greedy, as Firefox decodes
    comparison = compare(
        translator,
        [pair.source for pair in corpus.test],
        [pair.target for pair in corpus.test],
        {"base": {"weight": 0.0}, "knn": with_value(search)},
    )
    print(comparison.table())
    base, knn = comparison.systems
    gains = [f"{knn.scores[name].value - base.scores[name].value:+.1f} {name}" for name in comparison.signatures]
    print(f"Neighbours bring {', '.join(gains)}.\n")
    show_examples(comparison, corpus.test)
    figures = {"datastore_reused": not built, "entries": len(store), **comparison.to_dict()}
    if json_path is not None:
        write_json(json_path, figures)
    return figures


def settings_in_words(search: SearchSettings) -> str:
    """What a build found, for people."""
    if has_own_temperature(search.combiner):
        return f"combiner trained while building: {search.combiner}, k {search.k}"
    return f"settings found while building: k {search.k}, temperature {search.temperature:g}, weight {search.weight:g}"


def show_examples(comparison: Comparison, test: list[SentencePair]) -> None:
    """Print translations side by side, and the training sentences that contributed most to each."""
    base, knn = comparison.systems
    changed = [i for i in range(len(test)) if base.translations[i] != knn.translations[i]]
    # From all over the test set; of middling length, so that they are read at a glance.
    readable = [i for i in changed if 60 <= len(test[i].source) <= 160] or changed or list(range(len(test)))
    step = max(1, len(readable) // SHOWN)
    for i in readable[::step][:SHOWN]:
        print(labelled("source", test[i].source))
        print(labelled("base", base.translations[i]))
        print(labelled("kNN-MT", knn.translations[i]))
        print(labelled("reference", test[i].target))
        explanation = explain(knn.translator, [knn.translations[i]], **knn.settings)[0]
        for sentence, mass in explanation.sentences()[:SENTENCES]:
            source, target = knn.translator.store.texts[sentence]
            print(labelled("example", f"({mass:.1f} tokens) {target}  ←  {source}"))
        print()


def write_tsv(path: Path, pairs: list[SentencePair]) -> None:
    """Write sentence pairs, unless the file is there and the same."""
    text = "".join(f"{pair.source}\t{pair.target}\n" for pair in pairs)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
