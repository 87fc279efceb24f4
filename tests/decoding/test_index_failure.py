"""An index that does not answer: an error, or the model alone."""

from __future__ import annotations

import pytest

import knn_seq.decoding.outage as outage
from knn_seq import Translator
from knn_seq.errors import IndexUnavailable, KnnSeqError
from knn_seq.explain import explain
from knn_seq.retrieve.full import FullRetriever
from knn_seq.settings import SearchSettings

SOURCES = ["5 6 7", "9 10 11 12", "20 21", "33 34 35 36 37", "8 8", "50 40 30"]
OPTIONS = {"k": 8, "temperature": 10.0, "weight": 0.6, "batch_size": 2}


class Away:
    """Stands before a function and lets nobody through while it is shut."""

    def __init__(self, function):
        self.function, self.shut, self.asked = function, True, 0

    def __call__(self, *arguments, **named):
        self.asked += 1
        if self.shut:
            raise IndexUnavailable("The server of the test does not answer.")
        return self.function(*arguments, **named)


@pytest.fixture
def translator(number_store):
    return Translator(number_store, **OPTIONS)


@pytest.fixture(params=["open", "prepare", "retrieve"])
def away(request, monkeypatch):
    """One of the three ways in which an index is asked, and nobody answers."""
    shut = Away(getattr(FullRetriever, request.param))
    if request.param == "open":
        monkeypatch.setattr(FullRetriever, "open", shut)
    else:
        monkeypatch.setattr(FullRetriever, request.param, lambda *arguments, **named: shut(*arguments, **named))
    return shut


def test_it_is_an_error_by_default(translator, away):
    with pytest.raises(IndexUnavailable, match="server of the test"):
        translator.translate(SOURCES)
    assert away.asked == 1


def test_the_model_decodes_alone_and_a_warning_says_so_once(translator, away, caplog):
    alone = translator.translate(SOURCES, on_index_failure="base")
    assert away.asked == 1
    assert caplog.messages == [
        "Continuing without neighbours, for the index does not answer: The server of the test does not answer."
    ]
    assert alone == translator.translate(SOURCES, weight=0.0)
    away.shut = False
    assert translator.translate(SOURCES, on_index_failure="base") == alone  # it is left alone for a while


def test_it_is_asked_again_after_a_while(translator, away, caplog, monkeypatch):
    monkeypatch.setattr(outage, "RETRY_SECONDS", 0.0)
    alone = translator.translate(SOURCES, on_index_failure="base")
    assert away.asked > 1
    assert len(caplog.messages) == 1
    away.shut = False
    found = translator.translate(SOURCES, on_index_failure="base")
    assert found == translator.translate(SOURCES) != alone
    assert caplog.messages[1:] == ["The index answers again; continuing with neighbours."]
    away.shut = True
    translator.decoder._retrievers.clear()
    translator.translate(SOURCES, on_index_failure="base")
    assert caplog.messages[2].startswith("Continuing without neighbours")


def test_explanations_do_without_neighbours_too(translator, away, caplog):
    alone = translator.translate(SOURCES[:2], on_index_failure="base")
    explained = explain(translator, alone, on_index_failure="base")
    assert all(not evidence.neighbours for each in explained for evidence in each.tokens)
    assert len(caplog.messages) == 1
    with pytest.raises(IndexUnavailable, match="server of the test"):
        explain(translator, alone)


def test_other_mistakes_are_not_covered_up(translator, monkeypatch):
    def wrong(*arguments):
        raise KnnSeqError("That is something else.")

    monkeypatch.setattr(FullRetriever, "retrieve", wrong)
    with pytest.raises(KnnSeqError, match="something else"):
        translator.translate(SOURCES, on_index_failure="base")


def test_an_index_that_is_away_does_not_shut_out_another(translator, monkeypatch):
    away = Away(FullRetriever.retrieve)
    monkeypatch.setattr(FullRetriever, "retrieve", lambda *arguments, **named: away(*arguments, **named))
    translator.translate(SOURCES, on_index_failure="base")
    away.shut = False
    name = translator.store.manifest.default_index
    found = translator.translate(SOURCES, on_index_failure="base", index=name)
    assert found == translator.translate(SOURCES)


def test_what_is_opened_serves_both_settings(translator):
    opened = [
        translator.decoder.retriever(translator.settings({"on_index_failure": choice})[0])
        for choice in ("base", "error")
    ]
    assert opened[0] is opened[1]


def test_only_the_two_are_possible(number_store, knn_seq):
    with pytest.raises(KnnSeqError, match="On-index-failure must be error or base, not ignore"):
        SearchSettings(on_index_failure="ignore")
    code, _, error = knn_seq("translate", number_store.path, "--on-index-failure", "ignore")
    assert code == 2
    assert "--on-index-failure" in error
