"""Systems that decode side by side in one thread, a step of each at a time.

What else a machine does comes and goes within seconds.  Two translations, one after the other, differ by several
percent for that alone; two that change places at every step are hit by it alike.
"""

from __future__ import annotations

import copy
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from greenlet import getcurrent, greenlet
from torch import Tensor

from knn_seq.models.key_hook import KeyHook
from knn_seq.models.network import NetworkModel
from knn_seq.models.search import DecoderStep, RowDecoder


def twin(model: NetworkModel) -> NetworkModel:
    """The same model with modules of its own, so that its hooks are its own, and with the same weights in memory.

    Each of its steps first lets the others do their step that decode in lockstep with it.
    """
    shared = {id(tensor): tensor for tensor in itertools.chain(model.network.parameters(), model.network.buffers())}
    other = copy.copy(model)
    other.network = copy.deepcopy(model.network, shared)
    other.key_hook = KeyHook(other.network, other.network.get_decoder(), model.settings.key)
    other.row_decoder = partial(_pausing_decoder, other)  # type: ignore[method-assign]
    return other


def _pausing_decoder(model: NetworkModel, rows_each: int) -> RowDecoder:
    decoder = type(model).row_decoder(model, rows_each)
    step = decoder.step

    def paused(tokens: Tensor) -> DecoderStep:
        pause()
        return step(tokens)

    decoder.step = paused  # type: ignore[method-assign]
    return decoder


def pause(*_: Any) -> None:
    """Let the others do their step, if there are any."""
    if (others := getcurrent().parent) is not None:
        others.switch()


@torch.no_grad()
def rates_in_lockstep(
    systems: Mapping[str, Callable[[], int]], clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """What each system does in a second of its own; a system pauses after each step and returns how much it did.

    The clock may be that of the processor, which does not count what others do.  They take their turns in this order
    and, at every other step, in reverse.
    """
    running = {name: greenlet(run) for name, run in systems.items()}
    seconds, done = dict.fromkeys(systems, 0.0), dict[str, int]()
    for step in itertools.count():
        turns = [name for name in running if name not in done]
        if not turns:
            return {name: done[name] / seconds[name] for name in systems}
        for name in turns if step % 2 == 0 else reversed(turns):
            start = clock()
            result = running[name].switch()
            seconds[name] += clock() - start
            if running[name].dead:
                done[name] = result
    raise AssertionError


def rates_of_batches(
    systems: Mapping[str, Sequence[Callable[[], int]]], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[list[float]]]:
    """The same for systems whose work is cut into batches, of each batch in each round but a first one.

    Who begins changes from batch to batch: the others find the encoder's weights in the processor's cache.
    """
    results: dict[str, list[list[float]]] = {name: [[] for _ in range(rounds)] for name in systems}
    order = list(systems)
    for number in range(-1, rounds):
        for batch in zip(*systems.values(), strict=True):
            order.append(order.pop(0))
            runs = dict(zip(systems, batch, strict=True))
            measured = rates_in_lockstep({name: runs[name] for name in order}, clock)
            if number >= 0:
                for name, rate in measured.items():
                    results[name][number].append(rate)
    return results
