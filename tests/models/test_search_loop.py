"""Sentences that come and go, each with settings and a hook of its own."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import END, make_model

from knn_seq.models.ensemble import Ensemble
from knn_seq.models.search import SearchLoop
from knn_seq.models.step import StepChanges, StreamHook
from knn_seq.settings import DecodingSettings

SOURCES = [[9, 10, 11, 12, END], [13, 14, END], [20, END], [30, 31, 32, 33, 34, 35, 36, END], [5, 5, 5, END]]
SETTINGS = [
    DecodingSettings(beam_size=1, max_length=9),
    DecodingSettings(beam_size=3, max_length=7, nbest=2),
    DecodingSettings(sample=True, seed=5, nbest=2, max_length=8),
    DecodingSettings(beam_size=3, max_length=12, length_penalty=0.2),
    DecodingSettings(beam_size=2, max_length=3),
]

MARIAN = make_model("marian")


@pytest.fixture(scope="module", params=["marian", "t5", "llama"])
def model(request):
    return make_model(request.param)


class Favour(StreamHook):
    """Makes one token more probable, and remembers who entered and left."""

    def __init__(self, token):
        self.token, self.inside, self.entered = token, [], []

    def enter(self, sentences):
        self.inside += sentences
        self.entered += sentences

    def leave(self, sentences):
        for sentence in sentences:
            self.inside.remove(sentence)

    def edit(self, step):
        step.distribution.change(self.changes(step))

    def changes(self, step):
        assert set(step.sentences.tolist()) <= set(self.inside)
        tokens = torch.full((len(step.queries), 1), self.token)
        shift = torch.full((len(step.queries), 1), -0.7)
        return StepChanges(shift, tokens, torch.logaddexp(step.log_probs_of(tokens), torch.tensor(0.0)))

    def __call__(self, step):
        return self.changes(step).apply(step.log_probs)


def added(loop, model, source, decoding, hook=None, number=0):
    [plan] = model.search_plans([source], decoding)
    return loop.add(source, model.forced_tokens(source), plan, hook, number)


def same(ours, wanted):
    assert [one.tokens for one in ours] == [one.tokens for one in wanted]
    assert [one.score for one in ours] == pytest.approx([one.score for one in wanted], abs=1e-4)


@pytest.mark.parametrize("rows", [1, 4, 100])
def test_each_sentence_has_settings_and_a_hook_of_its_own(model, rows):
    hooks = [None, Favour(17), Favour(40)]
    wanted = [
        model.generate([source], decoding, hooks[place % 3])[0]
        for place, (source, decoding) in enumerate(zip(SOURCES, SETTINGS, strict=True))
    ]
    assert wanted[1] != model.generate([SOURCES[1]], SETTINGS[1])[0]
    loop = SearchLoop(model.row_decoder, rows)
    hooks = [None, Favour(17), Favour(40)]
    tickets = []
    for place, (source, decoding) in enumerate(zip(SOURCES, SETTINGS, strict=True)):
        number = 0 if decoding.sample else place  # the random numbers of a sentence depend on its number
        tickets.append(added(loop, model, source, decoding, hooks[place % 3], number))
        loop.step() if rows == 100 and place < 2 else None  # others are under way when the next one comes
    found = dict(loop.run())
    for ticket, hypotheses in zip(tickets, wanted, strict=True):
        same(found[ticket], hypotheses)
    assert not loop.busy
    assert all(not hook.inside and hook.entered for hook in hooks[1:])


def test_one_that_is_cancelled_disturbs_nobody(model):
    hook = Favour(17)
    wanted = model.generate([SOURCES[0]], SETTINGS[3])[0]
    loop = SearchLoop(model.row_decoder, 9)
    first, second, third, fourth = (
        added(loop, model, source, SETTINGS[3], hook, i) for i, source in enumerate(SOURCES[:4])
    )
    loop.step()
    loop.cancel(second)  # under way
    loop.cancel(fourth)  # waiting
    last = added(loop, model, SOURCES[0], SETTINGS[3])
    found = dict(loop.run())
    assert set(found) == {first, third, last}
    same(found[last], wanted)
    same(found[first], model.generate([SOURCES[0]], SETTINGS[3], Favour(17))[0])
    assert hook.inside == []
    loop.cancel(first)  # done long ago


def test_no_more_rows_than_allowed_unless_a_sentence_needs_them():
    model, rows = make_model("marian"), []
    open_decoder = model.row_decoder

    def counted(rows_each):
        decoder = open_decoder(rows_each)
        step = decoder.step
        decoder.step = lambda tokens: (rows.append(len(tokens)), step(tokens))[1]
        return decoder

    loop = SearchLoop(counted, 7)
    tickets = [added(loop, model, source, SETTINGS[3]) for source in SOURCES * 4]
    assert {found.ticket for found in loop.run()} == set(tickets)
    assert max(rows) == 6
    loop = SearchLoop(counted, 1)
    added(loop, model, SOURCES[0], SETTINGS[3])
    assert len(list(loop.run())) == 1


@settings(max_examples=15, deadline=None)
@given(
    sources=st.lists(st.lists(st.integers(4, 60), max_size=9).map(lambda tokens: [*tokens, END]), max_size=9),
    budget=st.integers(1, 120),
)
def test_the_token_budget_is_kept_and_changes_no_output(sources, budget):
    model, decoding = MARIAN, DecodingSettings(beam_size=2, max_length=6)
    loop = SearchLoop(model.row_decoder, 100, budget)
    costs = {added(loop, model, source, decoding): 3 * len(source) for source in sources if len(source) <= 6}
    costs |= {added(loop, model, source, decoding): len(source) + 2 * 6 for source in sources if len(source) > 6}
    loop.step()
    while loop.busy:
        under_way = [sentence.request for batch in loop._batches for sentence in batch.sentences]
        tokens = [costs[request.ticket] for request in under_way]
        assert sum(tokens) <= budget or len(tokens) == 1
        loop.step()
    limited = DecodingSettings(beam_size=2, max_length=6, batch_tokens=budget)
    for ours, wanted in zip(model.generate(sources, limited), model.generate(sources, decoding), strict=True):
        same(ours, wanted)


def test_random_numbers_do_not_depend_on_the_batch(model):
    decoding = DecodingSettings(sample=True, seed=11, nbest=2, max_length=10, sampling_temperature=2.0)
    wanted = model.generate(SOURCES, decoding)
    assert len({tuple(one.tokens) for nbest in wanted for one in nbest}) > 6
    for size in (1, 2, 3):
        found = dict(model.generate_stream(SOURCES, decoding, None, size))
        assert [[one.tokens for one in found[i]] for i in range(5)] == [
            [one.tokens for one in nbest] for nbest in wanted
        ]
    assert [nbest[0].tokens for nbest in model.generate(SOURCES, DecodingSettings(sample=True, seed=12))] != wanted


def test_sampling_has_the_right_distribution():
    model = make_model("marian")
    source, draws = [9, 10, END], 4000
    decoding = DecodingSettings(sample=True, seed=0, nbest=draws, top_k=0, max_length=1)
    seen = torch.tensor([one.tokens[0] for one in model.generate([source], decoding)[0]])
    with torch.no_grad():
        decoder = model.row_decoder(1)
        decoder.enter([source])
        wanted = decoder.step(torch.tensor([model.prefix[-1]])).logits[0].softmax(0)
    found = torch.bincount(seen, minlength=len(wanted)) / draws
    assert (found - wanted).abs().sum() < 0.15


@pytest.mark.parametrize("kinds", [("marian", "marian"), ("marian", "t5"), ("llama", "llama")])
@pytest.mark.parametrize("beams", [1, 3])
def test_an_ensemble_searches_as_with_generate(kinds, beams):
    ensemble = Ensemble([make_model(kind, seed) for seed, kind in enumerate(kinds)])
    decoding = DecodingSettings(beam_size=beams, nbest=beams, max_length=8)
    for hook in (None, lambda step: torch.log_softmax(1.3 * step.log_probs, dim=1)):
        found = dict(ensemble.generate_stream(SOURCES, decoding, hook, 2))
        for number, source in enumerate(SOURCES):
            same(found[number], ensemble._generate([source], decoding, hook)[0])
