"""Sentences of many requests in one search: what comes out is what each gives alone, and none waits for long."""

from __future__ import annotations

import asyncio
import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from knn_seq.errors import KnnSeqError
from knn_seq.explain import explain
from knn_seq.serve.continuous import ContinuousBatch
from knn_seq.serve.queue import TranslationQueue
from knn_seq.translator import Translator

TEXTS = [" ".join(str(5 + (7 * i + 3 * j) % 50) for j in range(1 + i % 6)) for i in range(12)]
OPTIONS = [{}, {"k": 2}, {"weight": 0.0}, {"beam_size": 2, "nbest": 2}, {"combiner": "distance", "beam_size": 1}]


@pytest.fixture(scope="module")
def translator(language_store, tmp_path_factory):
    path = tmp_path_factory.mktemp("continuous") / "store"
    shutil.copytree(language_store, path)
    with Translator(path, max_length=12) as translator:
        yield translator


@pytest.fixture(scope="module")
def alone(translator):
    """What each text gives with each of the options when it is translated alone."""
    return {(i, j): translator.translate(text, **o) for i, text in enumerate(TEXTS) for j, o in enumerate(OPTIONS)}


def told(translation):
    return str(translation), translation.tokens, [str(other) for other in translation.alternatives]


def finish(batch):
    found = {}
    while len(batch):
        found |= dict(batch.step())
    return found


COMING = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, len(TEXTS) - 1), st.integers(0, len(OPTIONS) - 1), st.booleans()),
    min_size=1,
    max_size=12,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(coming=COMING, size=st.integers(1, 5))
def test_whenever_sentences_come_and_go_each_is_translated_as_alone(translator, alone, coming, size):
    batch = ContinuousBatch.of(translator, size)
    found, wanted, unwanted = {}, {}, []
    for steps, text, option, goes in coming:
        ticket = batch.add(TEXTS[text], OPTIONS[option])
        if goes:
            unwanted.append(ticket)
        else:
            wanted[ticket] = alone[text, option]
        for _ in range(steps):
            found |= dict(batch.step())
        for gone in [each for each in unwanted if each not in found]:
            batch.cancel(gone)
        unwanted.clear()
    found |= finish(batch)
    assert {ticket: told(found[ticket]) for ticket in wanted} == {ticket: told(each) for ticket, each in wanted.items()}
    assert not batch._hooks  # nothing is kept of sentences that have left
    assert not batch._loop.busy


def test_a_sentence_sees_the_memory_as_it_is_when_it_comes(language_store, tmp_path):
    shutil.copytree(language_store, tmp_path / "store")
    with Translator(tmp_path / "store", max_length=12, weight=0.9, k=1, temperature=0.01) as translator:
        text, target = "21 22 23 24", "40 41 42"
        before = translator.translate(text)
        batch = ContinuousBatch.of(translator, 4)
        first = batch.add(text, {})
        batch.step()
        translator.add([(text, target)])
        second = batch.add(text, {})
        found = finish(batch)
        assert found[first] == before
        assert found[second] == translator.translate(text)
        assert found[second] != before


def test_explanations_between_two_steps_change_nothing(translator, alone):
    batch = ContinuousBatch.of(translator, 4)
    tickets = [batch.add(TEXTS[number], {}) for number in (3, 5)]
    batch.step()
    explain(translator, [alone[4, 0]], 2)
    found = finish(batch)
    assert [told(found[ticket]) for ticket in tickets] == [told(alone[number, 0]) for number in (3, 5)]


def with_queue(translator, test, batch_size=2, **options):
    queue = TranslationQueue(translator, batch_size, 1000, **options)
    try:
        asyncio.run(test(queue))
    finally:
        queue.stop(60)


def test_a_short_text_is_done_before_a_long_one_that_came_first(translator, alone):
    async def test(queue):
        long = asyncio.ensure_future(queue.translate(TEXTS * 5, {}))
        while not queue._under_way:
            await asyncio.sleep(0)
        [short] = await queue.translate([TEXTS[2]], {})
        assert not long.done()
        assert told(short) == told(alone[2, 0])
        assert [told(each) for each in await long] == [told(alone[number, 0]) for number in range(len(TEXTS))] * 5

    with_queue(translator, test)


def test_a_client_that_goes_away_frees_its_place(translator, alone):
    async def test(queue):
        gone = asyncio.ensure_future(queue.translate(TEXTS * 50, {}))
        while not queue._under_way:
            await asyncio.sleep(0)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        assert queue.waiting == 0
        assert [told(each) for each in await queue.translate([TEXTS[1]], {})] == [told(alone[1, 0])]
        assert not any(each.job.texts == TEXTS * 50 for each in queue._under_way.values())

    with_queue(translator, test)


def test_settings_that_cannot_be_fail_alone(translator, alone):
    async def test(queue):
        good = asyncio.ensure_future(queue.translate([TEXTS[1], "", TEXTS[2]], {}))
        with pytest.raises(KnnSeqError):
            await queue.translate([TEXTS[3]], {"skip": "learned"})  # which nobody has trained
        found = await good
        assert [str(each) for each in found] == [alone[1, 0], "", alone[2, 0]]

    with_queue(translator, test)


def test_sentences_of_a_step_that_fails_are_translated_in_batches(translator, alone):
    steps = []

    async def test(queue):
        step = queue._continuous.step

        def failing():
            if not steps:
                raise RuntimeError("Once.")
            return step()

        queue._continuous.step = failing
        found = await queue.translate(TEXTS, {})
        assert [told(each) for each in found] == [told(alone[number, 0]) for number in range(len(TEXTS))]

    with_queue(translator, test, done=lambda size, seconds, parts: steps.append(size))
    assert max(steps) == 2


def test_terms_bind_sentences_that_have_them(translator, alone):
    async def test(queue):
        found = await queue.translate([TEXTS[1], "16 17 18"], {})
        assert str(found[0]) == str(alone[1, 0])
        assert "55" in found[1].split()

    glossary = translator._opened_glossary({"17": "55"})
    try:
        with_queue(translator, test, prepare=lambda: setattr(translator, "glossary", glossary))
    finally:
        translator.glossary = None
