"""Key computation over the bare forward pass: what reading, batching, converting and writing cost.

The build's own step computes the keys of some sentences of the demo's text into a fresh file.  The bare pass runs the
network under teacher forcing over the very same batches, padded and in memory beforehand, and throws away what comes
out: once up to the last layer, once with the output projection, which keys do not need.  And the build's step in int8
over the same in float32.

    python benchmarks/key_computation.py --folder results/speed
"""

from __future__ import annotations

from knn_seq.runtime.environment import limit_spinning

limit_spinning()  # before torch is imported

import statistics
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rounds import Options, Ratio, Row, command_line, options_of, rates, rates_by_pieces, ratios_by_pieces, table
from speed_models import demo_text, speed_model
from torch import Tensor

from knn_seq.build.batches import plan_batches
from knn_seq.build.keys import store_keys
from knn_seq.build.text import Naming, store_text
from knn_seq.corpus import open_corpus
from knn_seq.demo.run import write_tsv
from knn_seq.models import TokenPair
from knn_seq.models.network import NetworkModel
from knn_seq.settings import BuildSettings
from knn_seq.storage import Segment
from knn_seq.storage.atomic import partial_of

SENTENCES = {"firefox": 1_500, "marian-base": 200, "marian-big": 60}  # some seconds of work
QUICK_SENTENCES = {"firefox": 100, "marian-base": 16, "marian-big": 8}
GOAL = 0.9
INT8_GOAL = 2.0  # keys in int8 over keys in float32
Batch = dict[str, Tensor]


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--models", nargs="+", choices=SENTENCES)
    arguments = parser.parse_args()
    print(table(measure(arguments.folder, options_of(arguments), arguments.models)))


def measure(folder: Path, options: Options, models: Sequence[str] | None = None) -> list[Row]:
    """Rows for each model: the build's step against the bare pass, without and with the output projection."""
    rows: list[Row] = []
    for name in models or (SENTENCES if options.full else ("firefox", "marian-base")):
        count = (QUICK_SENTENCES if options.quick else SENTENCES)[name]
        rows += compared(name, speed_model(name), folder / "keys" / f"{name}-{count}", count, options)
        rows.append(in_int8(name, folder / "keys" / f"{name}-{count}", count, options))
    return rows


def in_int8(name: str, folder: Path, count: int, options: Options) -> Row:
    """The build's step in both precisions in turns."""
    settings = BuildSettings()
    models = {dtype: speed_model(name, dtype) for dtype in ("float32", "int8")}
    store = text_of(folder, models["int8"], count, settings)
    systems = {
        dtype: [partial(build_step, store, model, settings, len(store.values.items))] for dtype, model in models.items()
    }
    measured = rates_by_pieces(systems, options.rounds, time.process_time)
    ratio = ratios_by_pieces(measured)["int8"]
    figures = {"tokens_per_cpu_second": measured}
    return Row(f"keys in int8 / in float32, {name}", ratio, options.goal(INT8_GOAL), False, figures)


def compared(name: str, model: NetworkModel, folder: Path, count: int, options: Options) -> list[Row]:
    """Both ways in turns, over so many sentences."""
    settings = BuildSettings()
    store = text_of(folder, model, count, settings)
    batches = padded_batches(store, model, settings)
    tokens = len(store.values.items)
    systems = {
        "bare": partial(bare_pass, model, batches, tokens),
        "logits": partial(pass_with_logits, model, batches, tokens),
        "keys": partial(build_step, store, model, settings, tokens),
    }
    measured = rates(systems, options.rounds)
    figures = {"tokens": tokens, "batches": len(batches), "tokens_per_second": measured}
    for system, values in measured.items():
        print(f"{name}, {system}: {statistics.median(values):,.0f} tokens/s", file=sys.stderr, flush=True)
    against = {"bare": ("to the last layer", options.goal(GOAL)), "logits": ("with logits", None)}
    return [
        Row(
            f"keys / bare forward pass {how}, {name}", Ratio.of(measured["keys"], measured[other]), goal, False, figures
        )
        for other, (how, goal) in against.items()
    ]


def text_of(folder: Path, model: NetworkModel, count: int, settings: BuildSettings) -> Segment:
    """A segment that has its text and no keys yet, as the first step of the build leaves it."""
    store = Segment(folder / "store")
    if not store.values_path.exists() or not store.text_path.exists():
        train, _ = demo_text()
        write_tsv(folder / "train.tsv", train[:: len(train) // count][:count])
        store_text(store, open_corpus(folder / "train.tsv"), model.tokenizer, settings, Naming("demo", "train.tsv", ""))
    return store


def padded_batches(store: Segment, model: NetworkModel, settings: BuildSettings) -> list[Batch]:
    """What the network reads, batch after batch as the build packs them."""
    batches = []
    for numbers in plan_batches(store.sources, store.values, settings.batch_tokens):
        pairs = [TokenPair(store.sources[i].tolist(), store.values[i].tolist()) for i in numbers]
        batches.append(model._teacher_forcing(pairs)[0])
    return batches


@torch.inference_mode()
def bare_pass(model: NetworkModel, batches: list[Batch], tokens: int) -> int:
    """Encoder and decoder, to the end of the last layer."""
    encoder, decoder = model.network.get_encoder(), model.network.get_decoder()
    for batch in batches:
        states: Any = encoder(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])[0]
        decoder(
            input_ids=batch["decoder_input_ids"],
            encoder_hidden_states=states,
            encoder_attention_mask=batch["attention_mask"],
            use_cache=False,
        )
    return tokens


@torch.inference_mode()
def pass_with_logits(model: NetworkModel, batches: list[Batch], tokens: int) -> int:
    """The network as it is called, with a logit for every word of the vocabulary."""
    for batch in batches:
        model.network(**batch, use_cache=False)
    return tokens


def build_step(store: Segment, model: NetworkModel, settings: BuildSettings, tokens: int) -> int:
    """What `knn-seq build` does between the text and the index."""
    for path in (store.keys_path, partial_of(store.keys_path)):
        path.unlink(missing_ok=True)
    store_keys(store, model, settings, {"model": model.fingerprint.weights})
    return tokens


if __name__ == "__main__":
    main()
