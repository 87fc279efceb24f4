"""Prompts that begin alike: the same outputs, with fewer tokens read."""

from __future__ import annotations

import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import DECODER_ONLY, make_model

from knn_seq.models.prompt_cache import PromptCache, common_beginning
from knn_seq.settings import DecodingSettings

SHARED = [9, 10, 11, 12, 13, 14, 15, 16, 17, 18]
PROMPTS = [[*SHARED, 20, 21, 22, 23], [*SHARED, 24], [*SHARED, 25, 26, 27]]
MODES = {
    "greedy": {"beam_size": 1},
    "beam": {"beam_size": 3, "nbest": 2},
    "sampling": {"sample": True, "nbest": 3, "seed": 1},
}


def outputs(model, prompts, mode, seen=None):
    def hook(step):
        if seen is not None:
            seen.append(step.queries.clone())
        return step.log_probs

    made = model.generate(prompts, DecodingSettings(max_length=7, **MODES[mode]), hook)
    return [[(list(one.tokens), one.score) for one in nbest] for nbest in made]


@pytest.mark.parametrize("kind", sorted(DECODER_ONLY))
@pytest.mark.parametrize("mode", MODES)
def test_outputs_are_the_same(kind, mode, monkeypatch):
    model = make_model(kind)
    read, queries, plain_queries = [], [], []
    handle = model.network.base_model.register_forward_pre_hook(
        lambda module, given, named: read.append((given[0] if given else named["input_ids"]).shape), with_kwargs=True
    )
    with_cache = outputs(model, PROMPTS, mode, queries)
    rows = read[1][0]
    assert read[0] == (1, len(SHARED))  # the beginning, once
    assert read[1] == (rows, 4)  # and then the rest of the longest prompt
    read.clear()
    again = outputs(model, PROMPTS[:2], mode)
    assert read[0][1] == 4  # it is known from the batch before
    read.clear()
    alone = outputs(model, PROMPTS[2:], mode)
    assert read[0][1] == 3  # by a single prompt, too
    handle.remove()
    monkeypatch.setattr(PromptCache, "reuse", lambda self, inputs, copies: inputs)
    plain = outputs(model, PROMPTS, mode, plain_queries)
    others = (alone, outputs(model, PROMPTS[2:], mode)), (again, outputs(model, PROMPTS[:2], mode))
    for made, wanted in ((with_cache, plain), *others):
        assert [[tokens for tokens, _ in nbest] for nbest in made] == [
            [tokens for tokens, _ in nbest] for nbest in wanted
        ]
        assert [score for nbest in made for _, score in nbest] == pytest.approx(
            [score for nbest in wanted for _, score in nbest], abs=1e-4
        )
    for mine, wanted in zip(queries, plain_queries, strict=True):
        torch.testing.assert_close(mine, wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("option", [{"use_cache": False}, {"cache_implementation": "static"}])
def test_a_cache_of_another_kind_is_left_alone(option, monkeypatch):
    model = make_model("llama")
    monkeypatch.setattr(PromptCache, "reuse", None)  # it is not called
    made = model.generate(PROMPTS, transformers.GenerationConfig(max_new_tokens=5, num_beams=1, **option))
    assert all(len(best.tokens) >= 1 for [best] in made)


@pytest.mark.parametrize("prompts", [[[20, 21], [20, 22]], [[5], [6]], [SHARED[:8], SHARED[:8]]])
def test_short_beginnings_are_read_again(prompts, monkeypatch):
    model = make_model("gpt2")
    tokens = torch.tensor(prompts)
    inputs = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "pad_token_id": 1}
    assert model.prompt_cache.reuse(inputs, 1) is inputs


def test_networks_that_do_not_attend_to_everything_are_left_alone():
    model = make_model("qwen2")
    model.network.config.layer_types = ["full_attention", "sliding_attention"]
    inputs = model._decoding_inputs(PROMPTS)
    assert model.prompt_cache.reuse(inputs, 1) is inputs


@given(st.lists(st.lists(st.integers(0, 2), max_size=6), min_size=1, max_size=4))
def test_the_common_beginning(sequences):
    shared = common_beginning(sequences)
    assert all(sequence[: len(shared)] == shared for sequence in sequences)
    longer = {tuple(sequence[: len(shared) + 1]) for sequence in sequences}
    assert len(longer) > 1 or min(map(len, sequences)) == len(shared)
