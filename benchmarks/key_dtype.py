"""What do keys stored in float16 cost?  The same text with float32 keys beside them, an exact index of each.

Both are searched with the settings that the build with float32 keys measured, so that the keys alone differ.

    python benchmarks/key_dtype.py --into docs/building.md
"""

from __future__ import annotations

from knn_seq.runtime.environment import limit_spinning

limit_spinning()  # before torch is imported

from pathlib import Path
from typing import Any

from figures import markdown, measuring_conditions, write_figures
from measured_code import digest
from rounds import command_line, options_of

from knn_seq import Datastore, Translator
from knn_seq.demo.corpus import load_demo_corpus
from knn_seq.demo.run import MODEL, write_tsv
from knn_seq.metrics import METRICS
from knn_seq.models import load_model
from knn_seq.settings import ModelSettings, with_value

SENTENCES, QUICK_SENTENCES, QUICK_TEST = 3000, 100, 8
DTYPES = ("float32", "float16")
SETTINGS: dict[str, Any] = {"index_recipe": "Flat", "combiner": "fixed"}  # a trained combiner would be another for each


def main() -> None:
    arguments = command_line(__doc__).parse_args()
    quick, conditions = options_of(arguments).quick, measuring_conditions()
    corpus, count = load_demo_corpus(), QUICK_SENTENCES if quick else SENTENCES
    test = corpus.test[: QUICK_TEST if quick else None]
    sources, references = [pair.source for pair in test], [pair.target for pair in test]
    folder = arguments.folder / f"key-dtype-{count}-{digest((Path(__file__).name,))}"
    write_tsv(folder / "train.tsv", corpus.train[:count])
    model = load_model(ModelSettings(MODEL))
    stores = {
        dtype: Datastore.build(folder / dtype, model, folder / "train.tsv", key_dtype=dtype, **SETTINGS)
        for dtype in DTYPES
    }
    settings = with_value(stores["float32"].search_settings)
    outputs = {
        dtype: [str(output) for output in Translator(store, model).translate(sources, **settings)]
        for dtype, store in stores.items()
    }
    scores = METRICS.get("bleu")().scores(outputs, references, sources)
    rows = []
    for dtype, store in stores.items():
        changed = sum(one != other for one, other in zip(outputs[dtype], outputs["float32"], strict=True))
        size = f"{store.keys.dtype.itemsize * store.keys.shape[1]:,}"
        rows.append([dtype, size, f"{scores[dtype].value:.2f}", f"{changed} of {len(test)}"])
    title = (
        f"Bible, Portuguese to English: {count:,} sentence pairs, {len(stores['float16']):,} entries, index Flat, "
        f"combiner `fixed`, {len(test)} test sentences, 5 beams."
    )
    table = markdown(["keys stored in", "bytes of a key", "BLEU", "translations changed"], rows)
    write_figures(arguments.into, {"key-dtype": f"{title}\n\n{table}"}, conditions)


if __name__ == "__main__":
    main()
