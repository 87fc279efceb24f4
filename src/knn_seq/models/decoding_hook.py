"""The hook that lets neighbours change what a Transformers model decodes, inside its own generate()."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from knn_seq.models.base import Step, StepHook
from knn_seq.models.key_hook import KeyHook


def log_softmax(logits: Tensor) -> Tensor:
    """log p, (rows, vocabulary), in the place of the logits if that can be."""
    if logits.device.type == "cpu" and not logits.requires_grad and logits.is_contiguous():
        # New memory for rows × vocabulary at every step costs twice as much as the computation.
        return torch.log_softmax(logits, dim=-1, out=logits)
    return torch.log_softmax(logits, dim=-1)


class LogProbs(Tensor):
    """Log-probabilities, which a search need neither copy nor normalise again: both take long over a vocabulary.

    They stay what they are until its log_softmax; everything else makes plain tensors of them.
    """

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, arguments: tuple[Any, ...] = (), named: dict[str, Any] | None = None
    ) -> Any:
        named = named or {}
        with torch._C.DisableTorchFunctionSubclass():  # results are plain tensors
            if function in (F.log_softmax, torch.log_softmax, Tensor.log_softmax):
                return arguments[0].as_subclass(Tensor)
            if function is Tensor.to:
                return function(*arguments, **{**named, "copy": False}).as_subclass(cls)
            result = function(*arguments, **named)
            return result.as_subclass(cls) if function in (Tensor.__getitem__, Tensor.float) else result


@contextmanager
def decoding_hook(
    network: Any, key_hook: KeyHook, step_hook: StepHook, sentences: int, ends: Collection[int] = ()
) -> Iterator[None]:
    """While inside, `network.generate()` decodes from what `step_hook` makes of each step.

    The network's logits are replaced by log-probabilities in float32.  Being normalised they survive the softmax of
    sampling, and every logits processor runs after them, as it should.

    Args:
        network: A Transformers model with generate().
        key_hook: Takes the queries out of its forward pass.
        step_hook: Called at every step.
        sentences: How many sentences are in the batch; there are as many rows or a multiple of them.
        ends: Tokens after which a row is finished but stays in the batch, as in greedy search and sampling; beam search
            has none.
    """
    prefix: Tensor | None = None
    forced: int | None = None  # tokens that were there before the first step: start token, language, prompt
    of_rows = torch.empty(0, dtype=torch.int64)  # the sentence of each row
    prepare = network.prepare_inputs_for_generation

    @functools.wraps(prepare)
    def remember_prefix(input_ids: Tensor, *arguments: Any, **named: Any) -> Any:
        nonlocal prefix, forced
        prefix = input_ids
        forced = input_ids.shape[1] if forced is None else forced
        return prepare(input_ids, *arguments, **named)

    def replace_logits(module: Any, inputs: Any, output: Any) -> Any:
        nonlocal of_rows
        assert prefix is not None, "the network was run outside generate()"
        rows = len(prefix)
        if len(of_rows) != rows:
            of_rows = torch.arange(rows) // (rows // sentences)
        generated = prefix[:, forced:]
        step = Step(
            queries=key_hook.states(rows)[:, -1],
            log_probs=log_softmax(output.logits[:, -1].float()),
            prefixes=generated,
            sentences=of_rows,
            finished=_finished(generated, ends),
        )
        mixture = step_hook(step).unsqueeze(1)
        output.logits = mixture if ends else mixture.as_subclass(LogProbs)
        return output

    handle = network.register_forward_hook(replace_logits)
    network.prepare_inputs_for_generation = remember_prefix
    try:
        with key_hook.attached():
            yield
    finally:
        handle.remove()
        del network.prepare_inputs_for_generation


def _finished(prefixes: Tensor, ends: Collection[int]) -> Tensor | None:
    """Which rows have come to an end, (rows,) bool, if any has."""
    if not ends:
        return None
    finished = torch.isin(prefixes, torch.tensor(list(ends), device=prefixes.device)).any(dim=1)
    return finished if finished.any() else None
