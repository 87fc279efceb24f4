"""What do 8 bits and a shortlist cost?  BLEU of Firefox's model alone and with neighbours, against float32.

The model alone translates text of every domain, and with neighbours the Bible's.  Each store is searched with the
settings that its own build measured; greedy, on sentences that no store has.  How many translations change with the
batch size is told beside: float32 adds in another order, 8 bits are exact.

    python benchmarks/precision.py --into docs/speed.md
"""

from __future__ import annotations

from knn_seq.runtime.environment import prepare_environment

prepare_environment()  # before torch is imported

import random
from pathlib import Path
from typing import Any

from debian_text import TEXT_FOLDER
from domains import ParallelText, firefox_model, text_of
from figures import markdown, measuring_conditions, write_figures
from finetune import alone
from measured_code import digest
from rounds import command_line, options_of

from knn_seq import Datastore, Translator
from knn_seq.build.shortlist import add_shortlist
from knn_seq.decoding.stored_shortlist import open_shortlist
from knn_seq.demo.corpus import load_demo_corpus
from knn_seq.demo.run import MODEL, TRAINING_SENTENCES, write_tsv
from knn_seq.evaluate.comparison import shown_p_value
from knn_seq.metrics import METRICS
from knn_seq.models import load_model
from knn_seq.models.encoder_decoder import EncoderDecoderModel
from knn_seq.settings import ModelSettings

QUICK_SENTENCES, QUICK_TEST, ALONE = 300, 16, 150  # sentences that are translated one by one, too
DOMAIN_SENTENCES = {"bible": 1000, "it": 3000, "office-help": 1000, "manuals": 1000}  # those of IT are short
SYSTEMS = {  # label: dtype of the keys, of the model, whose shortlist
    "float32": ("float32", "float32", None),
    "int8": ("int8", "int8", None),
    "int8, keys of float32": ("float32", "int8", None),
    "float32, shortlist": ("float32", "float32", "model"),
    "int8, shortlist": ("int8", "int8", "model"),
    "float32, shortlist learned from the store": ("float32", "float32", "store"),
    "int8, shortlist learned from the store": ("int8", "int8", "store"),
}


def main() -> None:
    arguments = command_line(__doc__).parse_args()
    quick, conditions = options_of(arguments).quick, measuring_conditions()
    corpus, count = load_demo_corpus(), QUICK_SENTENCES if quick else TRAINING_SENTENCES
    test = (corpus.dev + corpus.test)[: QUICK_TEST if quick else None]
    sources, references = [pair.source for pair in test], [pair.target for pair in test]
    folder = arguments.folder / f"precision-{count}-{digest((Path(__file__).name,))}"
    write_tsv(folder / "train.tsv", corpus.train[:count])
    for dtype in ("float32", "int8"):
        model = load_model(ModelSettings(MODEL, dtype=dtype))
        Datastore.build(folder / dtype, model, folder / "train.tsv")
    outputs: dict[str, dict[str, list[str]]] = {"base": {}, "kNN-MT": {}}
    changed: dict[str, int] = {}
    for label, (keys, dtype, shortlist) in SYSTEMS.items():
        translator = Translator(folder / keys, dtype=dtype, shortlist=shortlist == "model", beam_size=1)
        if shortlist == "store":
            learn(translator)
        outputs["base"][label] = texts(translator, sources, weight=0.0)
        outputs["kNN-MT"][label] = texts(translator, sources)
        single = texts(translator, sources[:ALONE], batch_size=1)
        changed[label] = sum(one != other for one, other in zip(outputs["kNN-MT"][label], single, strict=False))
    bleu = {system: METRICS.get("bleu")().scores(its, references, sources) for system, its in outputs.items()}
    rows = [
        [
            label,
            *(f"{bleu[system][label].value:.2f}" for system in outputs),
            f"{changed[label]} of {len(sources[:ALONE])}",
        ]
        for label in SYSTEMS
    ]
    title = (
        f"Bible, Portuguese to English: {count:,} sentence pairs, {len(test):,} test sentences, greedy, batches of 32; "
        "the last column: translations with neighbours that are others sentence by sentence."
    )
    head = ["computed in", "BLEU of the model alone", "BLEU of kNN-MT", "changed by the batch size"]
    tables = {"precision/domains": model_alone(quick), "precision/bible": f"{title}\n\n{markdown(head, rows)}"}
    write_figures(arguments.into, tables, conditions)


def model_alone(quick: bool) -> str:
    """The model alone in both precisions; p is of a paired bootstrap."""
    models = {dtype: firefox_model(dtype) for dtype in ("float32", "int8")}
    rows = []
    for name, count in DOMAIN_SENTENCES.items():
        pairs = text_of(name, TEXT_FOLDER)
        random.Random(0).shuffle(pairs)
        text = ParallelText.of(name, pairs[: QUICK_TEST if quick else count])
        outputs = {dtype: texts(alone(model), text.sources, weight=0.0) for dtype, model in models.items()}
        scores = METRICS.get("bleu")().scores(outputs, text.references, text.sources)
        values = [scores[dtype].value for dtype in models]
        cells = [f"{len(text.sources):,}", *(f"{value:.2f}" for value in values), f"{values[1] - values[0]:+.2f}"]
        rows.append([name, *cells, shown_p_value(scores["int8"].p_value or 0.0)])
    return markdown(["the model alone", "sentences", *models, "difference", "p"], rows)


def learn(translator: Translator) -> None:
    """Let the model have the shortlist that its datastore's sentence pairs give, as if it came with none."""
    store, model = translator.store, translator.model
    assert isinstance(store, Datastore)
    assert isinstance(model, EncoderDecoderModel)
    add_shortlist(store, model)
    model.shortlist = open_shortlist(store, model.vocabulary_size)


def texts(translator: Translator, sources: list[str], **options: Any) -> list[str]:
    return [str(output) for output in translator.translate(sources, **options)]


if __name__ == "__main__":
    main()
