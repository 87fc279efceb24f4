"""What a static cache and torch.compile would do for a Transformer of the base size, translating sentence by sentence.

A model that is faster alone is as much faster with neighbours, which cost the same time whatever the model does.
Compiling needs a C++ compiler and takes minutes.

    python benchmarks/compiled.py
"""

from __future__ import annotations

from knn_seq.runtime.environment import limit_spinning

limit_spinning()  # before torch is imported

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from rounds import Row, command_line, options_of, rates_by_pieces, ratios_by_pieces, table
from speed_models import SIZES, demo_text, speed_model

from knn_seq.models.network import NetworkModel

SENTENCES, BEAM, LENGTH = 8, 5, 32


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--model", choices=SIZES, default="marian-base")
    arguments = parser.parse_args()
    options, model = options_of(arguments), speed_model(arguments.model)
    sources = sorted((pair.source for pair in demo_text()[1][:SENTENCES]), key=len)
    batches = [model._decoding_inputs([tokens]) for tokens in model.tokenizer.encode_sources(sources)]
    plain = model.network.get_decoder().forward
    compiled = torch.compile(plain, dynamic=True)
    ways: dict[str, Callable[[dict[str, Any]], int]] = {
        "as it is": partial(decoded, model, plain),
        "static cache": partial(decoded, model, plain, cache_implementation="static"),
        "compiled decoder": partial(decoded, model, compiled),
    }
    start = time.perf_counter()
    for inputs in batches:
        ways["compiled decoder"](inputs)
    print(f"compiled, and translated once, in {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    measured = rates_by_pieces(
        {name: [partial(way, inputs) for inputs in batches] for name, way in ways.items()}, options.rounds
    )
    found = list(ratios_by_pieces(measured).items())[1:]
    print(table([Row(f"{name} / as it is, {arguments.model}, beam {BEAM}, batch 1", ratio) for name, ratio in found]))


def decoded(model: NetworkModel, decoder: Callable[..., Any], inputs: dict[str, Any], **named: Any) -> int:
    """Translate with this forward pass of the decoder; returns the number of tokens."""
    model.network.get_decoder().forward = decoder
    return int(
        model.network.generate(**inputs, num_beams=BEAM, max_new_tokens=LENGTH, max_length=None, **named).shape[1]
    )


if __name__ == "__main__":
    main()
