"""Our own search against generate() of Transformers on the same networks: the same outputs to the last token."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import END, NETWORKS, VOCABULARY, make_model
from transformers import GenerationConfig

from knn_seq.models.step import Step

KINDS = sorted(NETWORKS)
SOURCES = [[9, 10, 11, 12, END], [13, 14, END], [20, END], [30, 31, 32, 33, 34, 35, 36, END], [5, 5, 5, END]]
ENDS = [END, *range(3, VOCABULARY, 3)]  # so many that outputs have all lengths
SEARCHES = {
    "greedy": {},
    "greedy cut": {"max_new_tokens": 3},
    "one token": {"max_new_tokens": 1, "num_beams": 3},
    "beam": {"num_beams": 4},
    "nbest": {"num_beams": 4, "num_return_sequences": 4, "length_penalty": -2.0},
    "long": {"num_beams": 3, "length_penalty": 2.0, "num_return_sequences": 2},
    "penalty 0": {"num_beams": 3, "length_penalty": 0.0},
    "early": {"num_beams": 4, "early_stopping": True, "num_return_sequences": 3},
    "never": {"num_beams": 4, "early_stopping": "never", "num_return_sequences": 3},
    "end": {"num_beams": 2, "forced_eos_token_id": END, "max_new_tokens": 5},
    "greedy end": {"forced_eos_token_id": END, "max_new_tokens": 5, "min_new_tokens": 5},
    "min": {"num_beams": 3, "min_new_tokens": 6},
    "min length": {"min_length": 9},
    "ngrams": {"num_beams": 3, "no_repeat_ngram_size": 2, "min_new_tokens": 9},
    "greedy ngrams": {"no_repeat_ngram_size": 1, "min_new_tokens": 9},
    "bad words": {"num_beams": 2, "bad_words_ids": [[5], [30, 31], [8, 9, 10], *([i] for i in range(40, 50))]},
    "suppressed": {"suppress_tokens": list(range(20, 50)), "begin_suppress_tokens": list(range(0, 20))},
    "repetition": {"num_beams": 2, "repetition_penalty": 1.7, "num_return_sequences": 2},
    "greedy repetition": {"repetition_penalty": 0.6},
}


@cache
def model_of(kind, seed=0):
    return make_model(kind, seed)


def config_of(**fields):
    return GenerationConfig(**{"max_new_tokens": 12, "eos_token_id": ENDS, **fields})


def both(model, sources, config, hook=None):
    """What our search finds, and what generate() finds; prompts one by one, for rules look at their padding."""
    plans = model.search_plans(sources, config)
    assert plans is not None, "our search does not know this"
    ours = model.generate(sources, config, hook)
    if hasattr(model, "prefix"):
        return ours, model._generate(sources, config, hook)
    return ours, [model._generate([source], config, hook)[0] for source in sources]


def check(ours, theirs):
    assert [[one.tokens for one in nbest] for nbest in ours] == [[one.tokens for one in nbest] for nbest in theirs]
    for nbest, wanted in zip(ours, theirs, strict=True):
        assert [one.score for one in nbest] == pytest.approx([one.score for one in wanted], abs=1e-4)


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("kind", ["m2m100", "llama"])
def test_every_argument_means_the_same_to_generate(kind, search):
    check(*both(model_of(kind), SOURCES, config_of(**SEARCHES[search])))


@pytest.mark.parametrize("search", ["greedy", "nbest"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_network_writes_the_same_as_with_generate(kind, search):
    check(*both(model_of(kind), SOURCES, config_of(**SEARCHES[search])))


def test_outputs_have_different_lengths():
    """Else nothing would leave a batch early in these tests."""
    for beams in (1, 4):
        config = config_of(num_beams=beams, num_return_sequences=beams)
        for kind in ("marian", "bart", "t5", "llama"):
            found = model_of(kind).generate(SOURCES, config, pull)
            assert len({len(nbest[0].tokens) for nbest in found}) > 1


@settings(max_examples=25, deadline=None)
@given(
    kind=st.sampled_from(["marian", "t5", "llama"]),
    sources=st.lists(st.lists(st.integers(4, VOCABULARY - 1), min_size=1, max_size=9), min_size=1, max_size=5),
    beams=st.integers(1, 6),
    nbest=st.integers(1, 6),
    penalty=st.sampled_from([0.0, 0.6, 1.0, 2.0, -1.0]),
    early=st.sampled_from([True, False, "never"]),
    longest=st.integers(1, 14),
    seed=st.integers(0, 3),
)
def test_any_beam_search(kind, sources, beams, nbest, penalty, early, longest, seed):
    config = config_of(
        num_beams=beams,
        num_return_sequences=min(nbest, beams),
        length_penalty=penalty,
        early_stopping=early,
        max_new_tokens=longest,
        eos_token_id=ENDS[: 1 + seed * 3],
    )
    check(*both(model_of(kind, seed), [[*source, END] for source in sources], config))


@pytest.mark.parametrize("fields", [{}, {"top_k": 0}, {"top_k": 5, "temperature": 1.7}, {"top_k": 0, "top_p": 0.6}])
@pytest.mark.parametrize("kind", KINDS)
def test_sampling_draws_the_same_for_a_sentence_alone(kind, fields):
    model = model_of(kind)
    config = config_of(do_sample=True, eos_token_id=[END], max_new_tokens=8, num_return_sequences=3, **fields)
    for seed in range(2):
        torch.manual_seed(seed)
        ours = model.generate(SOURCES[:1], config)
        torch.manual_seed(seed)
        check(ours, model._generate(SOURCES[:1], config, None))


def pull(step: Step) -> torch.Tensor:
    """Something that depends on all that a hook is told."""
    generated = torch.where(step.prefixes < 0, 0, step.prefixes).sum(1)
    log_probs = step.log_probs.clone()
    rows = torch.arange(len(log_probs))
    log_probs[rows, 4 + (generated + (step.queries[:, 0] > 0)) % 50] += 3.0
    return torch.log_softmax(log_probs, dim=1)


@pytest.mark.parametrize("beams", [1, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_a_hook_sees_and_changes_the_same(kind, beams):
    model, config = model_of(kind), config_of(num_beams=beams, num_return_sequences=beams)
    ours, theirs = both(model, SOURCES, config, pull)
    check(ours, theirs)
    assert ours != model.generate(SOURCES, config)


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("kind", ["marian", "m2m100", "t5", "fsmt", "llama"])
def test_sentences_that_enter_while_others_are_under_way(kind, beams):
    model, config = model_of(kind), config_of(num_beams=beams, num_return_sequences=beams)
    sources = SOURCES * 2
    for hook in (None, pull):
        alone = [model.generate([source], config, hook)[0] for source in SOURCES] * 2
        for size in (2, 4):
            found = dict(model.generate_stream(sources, config, hook, size))
            check([found[number] for number in range(len(sources))], alone)


@pytest.mark.parametrize(
    "fields", [{"typical_p": 0.5, "do_sample": True}, {"num_beams": 2, "do_sample": True}, {"renormalize_logits": True}]
)
def test_what_it_does_not_know_is_left_to_generate(fields):
    model, config = model_of("marian"), config_of(**fields)
    assert model.search_plans(SOURCES, config) is None
    torch.manual_seed(0)
    ours = [nbest for _, nbest in model.generate_stream(SOURCES, config, pull, batch_size=2)]
    torch.manual_seed(0)
    theirs = [nbest for i in range(0, 5, 2) for nbest in model._generate(SOURCES[i : i + 2], config, pull)]
    assert ours == theirs
