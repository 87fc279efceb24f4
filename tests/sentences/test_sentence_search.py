"""What holds for every search."""

from __future__ import annotations

import numpy as np
import pytest

from knn_seq.errors import InvalidSetting
from knn_seq.sentences import SENTENCES
from knn_seq.sentences.base import absolute_spec, sentence_search

SPECS = [
    "bm25",
    "tfidf",
    "encoder",
    "encoder:l2",
    "transformers:{bert}",
    "transformers:{bert}:first",
    "transformers:{bert}:first:l2",
    "sentence-transformers:{static}",
]


@pytest.fixture(params=SPECS)
def search(request, ready_search, save_encoder):
    names = {}
    if "{bert}" in request.param:
        names["bert"] = save_encoder("Bert")[1]
    if "{static}" in request.param:
        names["static"] = request.getfixturevalue("static_embedding")[1]
    if request.param == "tfidf":
        pytest.importorskip("sklearn")
    return ready_search(request.param.format(**names))


def test_every_search_of_ours_is_tested_here():
    tested = {spec.partition(":")[0].replace("-", "_") for spec in SPECS}
    ours = {name for name in SENTENCES.names() if SENTENCES.get(name).__module__.startswith("knn_seq.")}
    assert tested == ours


def test_a_row_does_not_depend_on_its_batch(search, sources):
    asked = sources(12, seed=2)
    rows = search.nearest(asked, 7)
    assert rows.shape == (12, 7)
    assert rows.dtype == np.int64
    assert len({tuple(row) for row in rows.tolist()}) > 6
    for size in (1, 5):
        parts = [search.nearest(asked[start : start + size], 7) for start in range(0, 12, size)]
        np.testing.assert_array_equal(np.concatenate(parts), rows)
    np.testing.assert_array_equal(search.nearest(asked[::-1], 7), rows[::-1])
    twice = search.nearest([*asked, *asked], 7)
    np.testing.assert_array_equal(twice, np.concatenate([rows, rows]))


def test_fewer_are_the_first_of_more(search, sources):
    asked = sources(4, seed=3)
    np.testing.assert_array_equal(search.nearest(asked, 2), search.nearest(asked, 30)[:, :2])


def test_a_sentence_of_the_corpus_finds_itself(search, sources):
    corpus = sources(60, seed=1)
    found = search.nearest(corpus, 1)[:, 0]
    if SENTENCES.get("bm25") is type(search):  # it likes a short sentence more than one with other words besides
        assert np.mean(found == np.arange(60)) > 0.8
    else:
        assert [sorted(corpus[number].tokens) for number in found] == [sorted(source.tokens) for source in corpus]


def test_more_than_there_are_is_filled_up(search, sources):
    rows = search.nearest(sources(3, seed=4), 100)
    assert rows.shape == (3, 100)
    assert (rows[:, 60:] == -1).all()
    for row in rows.tolist():
        found = [number for number in row if number >= 0]
        assert row == found + [-1] * (100 - len(found))
        assert len(set(found)) == len(found)


def test_an_unknown_search_is_refused(model):
    with pytest.raises(InvalidSetting, match=r"no sentence search 'magic'.*bm25"):
        sentence_search("magic", model)


def test_an_option_that_the_encoder_does_not_have_is_refused(model):
    with pytest.raises(InvalidSetting, match="'encoder' or 'encoder:l2', not 'encoder:cosine'"):
        sentence_search("encoder:cosine", model)


def test_paths_of_encoders_become_absolute_whatever_is_behind_them(tmp_path, monkeypatch):
    (tmp_path / "bert").mkdir()
    monkeypatch.chdir(tmp_path)
    for behind in ("", ":first", ":l2", ":first:l2"):
        assert absolute_spec(f"transformers:bert{behind}") == f"transformers:{tmp_path / 'bert'}{behind}"
    assert absolute_spec("encoder:l2") == "encoder:l2"
    assert absolute_spec("transformers:org/name:first") == "transformers:org/name:first"
