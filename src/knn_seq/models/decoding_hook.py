"""The hook into generate() of a network: it sees the distribution of every step, and may let neighbours change it."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

from knn_seq.models.attention_hook import AttentionHook
from knn_seq.models.key_hook import KeyHook
from knn_seq.models.log_probs import LogProbs, SampledLogProbs, log_softmax
from knn_seq.models.step import Step, StepHook, wants_attention
from knn_seq.models.token_scores import TokenScores


@contextmanager
def decoding_hook(
    network: Any,
    key_hook: KeyHook,
    step_hook: StepHook | None,
    sentences: int,
    *,
    ends: Collection[int] = (),
    search_normalises: bool = True,
    token_scores: TokenScores | None = None,
    attention_hook: AttentionHook | None = None,
) -> Iterator[None]:
    """While inside, `network.generate()` decodes from what `step_hook` makes of each step.

    The network's logits are replaced by log-probabilities in float32.  Being normalised they survive the softmax of
    sampling, and every logits processor runs after them, as it should.

    Args:
        network: A network with generate().
        key_hook: Takes the queries out of its forward pass.
        step_hook: Called at every step; None: the network decodes from its own distributions.
        sentences: How many sentences are in the batch; there are as many rows or a multiple of them.
        ends: Tokens after which a row is finished but stays in the batch, as in greedy search and sampling; beam search
            has none.
        search_normalises: The search takes the log_softmax of the logits, as beam search does.
        token_scores: Told the distribution of every step.
        attention_hook: Tells where the network looks, if the step hook wants to know.
    """
    prefix: Tensor | None = None
    forced: int | None = None  # tokens that were there before the first step: start token, language, prompt
    of_rows = torch.empty(0, dtype=torch.int64)  # the sentence of each row
    prepare = network.prepare_inputs_for_generation
    looking = attention_hook if wants_attention(step_hook) else None

    @functools.wraps(prepare)
    def remember_prefix(input_ids: Tensor, *arguments: Any, **named: Any) -> Any:
        nonlocal prefix, forced
        prefix = input_ids
        forced = input_ids.shape[1] if forced is None else forced
        if token_scores is not None:
            token_scores.choose(input_ids[:, -1])
        return prepare(input_ids, *arguments, **named)

    def replace_logits(module: Any, inputs: Any, output: Any) -> Any:
        nonlocal of_rows
        assert prefix is not None, "the network was run outside generate()"
        prefixes, rows = prefix[:, forced:], len(prefix)
        log_probs = log_softmax(output.logits[:, -1].float())
        if step_hook is not None:
            if len(of_rows) != rows:
                of_rows = torch.arange(rows) // (rows // sentences)
            queries = key_hook.states(rows)[:, -1]
            attention = None if looking is None else looking.weights()
            step = Step(queries, log_probs, prefixes, of_rows, _finished(prefixes, ends), attention=attention)
            log_probs = step_hook(step)
        if token_scores is not None:
            token_scores.offer(log_probs)
        output.logits = log_probs.unsqueeze(1).as_subclass(LogProbs if search_normalises else SampledLogProbs)
        return output

    handle = network.register_forward_hook(replace_logits)
    network.prepare_inputs_for_generation = remember_prefix
    try:
        with ExitStack() as hooks:
            hooks.enter_context(key_hook.attached())
            if looking is not None:
                hooks.enter_context(looking.attached())
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
