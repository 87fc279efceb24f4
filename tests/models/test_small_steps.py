"""Steps that are too small for several threads."""

from __future__ import annotations

import math

import pytest
import torch

from knn_seq.models import load_model
from knn_seq.models.search import loop
from knn_seq.models.search.loop import SearchLoop
from knn_seq.models.step import StepHook
from knn_seq.settings import DecodingSettings, ModelSettings

TEXTS = ["No princípio criou Deus os céus e a terra.", "E disse Deus: Haja luz.", "Não temas, porque eu sou contigo."]
GREEDY = DecodingSettings(beam_size=1, max_length=12)


@pytest.fixture(autouse=True)
def _two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", params=[False, True], ids=["all words", "shortlist"])
def model(request):
    return load_model(ModelSettings("firefox:pt-en", dtype="int8", shortlist=request.param, device="cpu"))


class Watched:
    """A decoder that remembers how many threads it was called with."""

    def __init__(self, decoder, seen):
        self.decoder, self.seen = decoder, seen

    def __getattr__(self, name):
        return getattr(self.decoder, name)

    def enter(self, sources):
        self.seen.append(("enter", torch.get_num_threads()))
        self.decoder.enter(sources)

    def step(self, tokens):
        self.seen.append(("step", torch.get_num_threads()))
        return self.decoder.step(tokens)


class WatchedHook(StepHook):
    """Changes nothing, and remembers how many threads there were."""

    def __init__(self):
        self.seen = set()

    def __call__(self, step):
        self.seen.add(torch.get_num_threads())
        return step.log_probs


def threads_seen(model, texts, hook=None):
    """How many threads reading and stepping were done with."""
    seen = []
    sources = model.tokenizer.encode_sources(texts)
    searching = SearchLoop(lambda rows: Watched(model.row_decoder(rows), seen), len(sources))
    for source, plan in zip(sources, model.search_plans(sources, GREEDY), strict=True):
        searching.add(source, model.forced_tokens(source), plan, hook)
    list(searching.run())
    return set(seen)


def test_one_sentence_is_translated_by_one_thread_and_searched_for_by_all(model):
    hook = WatchedHook()
    assert threads_seen(model, TEXTS[:1], hook) == {("enter", 1), ("step", 1)}
    assert hook.seen == {2}
    assert torch.get_num_threads() == 2


def test_many_sentences_are_translated_by_all_threads(model):
    assert {("enter", 2), ("step", 2)} <= threads_seen(model, 16 * TEXTS)
    assert torch.get_num_threads() == 2


def test_with_a_shortlist_more_rows_are_small(model):
    expected = 1 if model.shortlist is not None else 2
    assert ("step", expected) in threads_seen(model, TEXTS[:2])


def test_a_network_of_unknown_size_is_never_small(model):
    decoder = super(type(model), model).row_decoder(1)
    inner = getattr(decoder, "decoder", decoder)
    assert inner.step_bytes == inner.source_bytes == math.inf


def test_a_source_that_cannot_be_read_gives_the_threads_back(model):
    searching = SearchLoop(model.row_decoder, 1)
    (source,) = model.tokenizer.encode_sources(TEXTS[:1])
    (plan,) = model.search_plans([source], GREEDY)
    searching.add([-1], model.forced_tokens(source), plan)  # no such token
    with pytest.raises(IndexError):
        list(searching.run())
    assert torch.get_num_threads() == 2


def test_outputs_do_not_depend_on_the_threads(model, monkeypatch):
    sources = model.tokenizer.encode_sources(TEXTS)
    few = [model.generate([source], GREEDY) for source in sources]
    monkeypatch.setattr(loop, "SMALL_SOURCES", 0)
    monkeypatch.setattr(loop, "SMALL_STEP", 0)
    assert [model.generate([source], GREEDY) for source in sources] == few
