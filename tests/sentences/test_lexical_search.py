from __future__ import annotations

import json
import math
import sys
import unicodedata
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from knn_seq.errors import DamagedFile, MissingLibrary
from knn_seq.models import Source
from knn_seq.sentences.base import sentence_search
from knn_seq.sentences.words import words

NAMES = ["bm25", "tfidf"]
WORDS = ["a", "the", "7", "42", "été", "हिन्दी", "語", "Ä", "file_name"]
SENTENCES = st.lists(st.sampled_from(WORDS), max_size=7)
CORPORA = st.lists(SENTENCES, min_size=1, max_size=14)
QUERIES = st.lists(st.sampled_from([*WORDS, "unknown", "?!"]), max_size=7)
QUICK = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(params=NAMES)
def name(request):
    if request.param == "tfidf":
        pytest.importorskip("sklearn")
    return request.param


def source(sentence):
    return Source(sentence if isinstance(sentence, str) else " ".join(sentence), [])


def fitted(name, model, corpus):
    search = sentence_search(name, model)
    search.fit([source(sentence) for sentence in corpus])
    return search


def nearest(search, query, n):
    return search.nearest([source(query)], n)[0].tolist()


def bm25_scores(corpus, query, k1=1.5, b=0.75):
    average = sum(map(len, corpus)) / len(corpus)
    scores = [0.0] * len(corpus)
    for word in query:
        having = sum(word in sentence for sentence in corpus)
        weight = math.log(1 + (len(corpus) - having + 0.5) / (having + 0.5))
        for number, sentence in enumerate(corpus):
            if word in sentence:
                times = sentence.count(word)
                scores[number] += weight * times / (times + k1 * (1 - b + b * len(sentence) / average))
    return scores


def tfidf_scores(corpus, query):
    known = {word for sentence in corpus for word in sentence}
    weights = {
        word: math.log((1 + len(corpus)) / (1 + sum(word in sentence for sentence in corpus))) + 1 for word in known
    }

    def vector(sentence):
        counts = {word: times * weights[word] for word, times in Counter(sentence).items() if word in known}
        length = math.sqrt(sum(value**2 for value in counts.values()))
        return {word: value / length for word, value in counts.items()}

    asked = vector(query)
    return [sum(value * asked.get(word, 0.0) for word, value in vector(sentence).items()) for sentence in corpus]


REFERENCES = {"bm25": bm25_scores, "tfidf": tfidf_scores}


@QUICK
@given(corpus=CORPORA, query=QUERIES, n=st.integers(1, 20))
def test_it_ranks_as_the_formula_says(name, model, corpus, query, n):
    search = fitted(name, model, corpus)
    expected = REFERENCES[name](corpus, query)
    numbers, scores = search.scores(" ".join(query))
    assert numbers.tolist() == [number for number, score in enumerate(expected) if score > 0]
    np.testing.assert_allclose(scores, np.array(expected)[numbers], rtol=1e-5)

    row = nearest(search, query, n)
    found = [number for number in row if number >= 0]
    assert len(row) == n
    assert len(found) == min(n, sum(score > 0 for score in expected))
    assert row == found + [-1] * (n - len(found))
    best = sorted(expected, reverse=True)[: len(found)]
    np.testing.assert_allclose([expected[number] for number in found], best, rtol=1e-5)


@QUICK
@given(corpus=CORPORA, query=QUERIES, n=st.integers(1, 20), order=st.randoms(use_true_random=False))
def test_of_equal_sentences_the_first_come_first(name, model, corpus, query, n, order):
    corpus = [*corpus, *corpus, *corpus]
    order.shuffle(corpus)
    row = nearest(fitted(name, model, corpus), query, n)
    groups = {}
    for number, sentence in enumerate(corpus):
        groups.setdefault(tuple(sorted(sentence)), []).append(number)
    for equal in groups.values():
        found = [number for number in row if number in equal]
        assert found == equal[: len(found)]


@QUICK
@given(corpus=CORPORA, queries=st.lists(QUERIES, min_size=1, max_size=5), n=st.integers(1, 20))
def test_what_is_saved_finds_the_same(name, model, tmp_path_factory, corpus, queries, n):
    search = fitted(name, model, corpus)
    folder = tmp_path_factory.mktemp("saved")
    search.save(folder)
    loaded = sentence_search(name, model)
    loaded.load(folder)
    asked = [source(query) for query in queries]
    np.testing.assert_array_equal(loaded.nearest(asked, n), search.nearest(asked, n))
    for query in asked:
        for now, then in zip(loaded.scores(query.text), search.scores(query.text), strict=True):
            np.testing.assert_array_equal(now, then)


def test_ties_are_broken_by_number_in_a_large_corpus(name, model):
    corpus = ["red house", "blue house", "green tree"] * 500
    search = fitted(name, model, corpus)
    assert nearest(search, "red house", 700) == [*range(0, 1500, 3), *range(1, 600, 3)]
    assert nearest(search, "tree", 3) == [2, 5, 8]


@pytest.mark.parametrize("query", ["", "  ", "?!", "unknown", "unknown words 9"])
def test_a_query_without_a_known_word_finds_nothing(name, model, query):
    search = fitted(name, model, ["a house", "the tree", ""])
    assert nearest(search, query, 4) == [-1] * 4


def test_a_corpus_of_one_sentence(name, model):
    search = fitted(name, model, ["a house"])
    assert nearest(search, "House?", 3) == [0, -1, -1]
    assert nearest(search, "tree", 1) == [-1]


@pytest.mark.parametrize("corpus", [[""], ["?", "", "..."], []])
@pytest.mark.filterwarnings("error")
def test_a_corpus_without_words(name, model, tmp_path, corpus):
    search = fitted(name, model, corpus)
    search.save(tmp_path)
    loaded = sentence_search(name, model)
    loaded.load(tmp_path)
    for either in (search, loaded):
        assert either.nearest([source("a house"), source("")], 2).tolist() == [[-1, -1], [-1, -1]]


def test_no_query_gives_no_row(name, model):
    assert fitted(name, model, ["a house"]).nearest([], 5).shape == (0, 5)


def test_a_corpus_is_read_once_and_in_order(name, model):
    read = []

    class Lazy(Sequence):
        def __len__(self):
            return 3

        def __getitem__(self, number):
            text = ["a house", "the tree", "no"][number]  # beyond the end an IndexError, that ends the iteration
            read.append(number)
            return Source(text, [])

    search = sentence_search(name, model)
    search.fit(Lazy())
    assert read == [0, 1, 2]
    assert nearest(search, "tree", 2) == [1, -1]


def test_an_error_of_the_corpus_is_not_hidden(name, model):
    def broken():
        yield Source("", [])
        raise ValueError("line 2 is not text")

    with pytest.raises(ValueError, match="line 2"):
        sentence_search(name, model).fit(broken())


def test_nothing_is_printed(name, model, tmp_path, capfd):
    search = fitted(name, model, ["a house", "the tree"])
    search.save(tmp_path)
    search.load(tmp_path)
    nearest(search, "tree", 2)
    assert capfd.readouterr() == ("", "")


def test_what_is_loaded_stays_on_the_disk_and_is_not_pickled(name, model, tmp_path):
    search = fitted(name, model, ["a house", "the tree"])
    search.save(tmp_path)
    for path in tmp_path.iterdir():
        if path.suffix == ".npy":
            np.load(path, allow_pickle=False)
        else:
            json.loads(path.read_text(encoding="utf-8"))
    search.load(tmp_path)
    arrays = search._bm25.scores if name == "bm25" else vars(search._postings)
    for part in ("data", "indices"):
        array = arrays[part]
        while array is not None and not isinstance(array, np.memmap):
            array = array.base
        assert array is not None, f"{part} was read into memory"


def test_a_folder_that_holds_no_search_is_refused(name, model, tmp_path):
    search = sentence_search(name, model)
    with pytest.raises(DamagedFile, match=r"no complete .* index in .*build"):
        search.load(tmp_path)
    fitted(name, model, ["a house", "the tree"] * 400).save(tmp_path)
    largest = max(tmp_path.glob("*.npy"), key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-100])
    with pytest.raises(DamagedFile, match=r"no complete .* index in .*build"):
        search.load(tmp_path)


def test_without_scikit_learn_a_sentence_says_what_to_install(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(MissingLibrary, match=r"pip install knn-seq\[tfidf\]"):
        sentence_search("tfidf", model)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("?! … — ❤️", []),
        ("Don't panic, it's 3.14 or 7!", ["don", "t", "panic", "it", "s", "3", "14", "or", "7"]),
        ("Die Straße, DIE STRASSE", ["die", "strasse", "die", "strasse"]),
        ("e\u0301te\u0301 \u00e9t\u00e9", ["\u00e9t\u00e9"] * 2),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("العَرَبِيَّة لغة", ["العَرَبِيَّة", "لغة"]),
        ("한국어 문장", ["한국어", "문장"]),
        ("日本語のABC12。時々、ﾃｽﾄ", [*"日本語の", "abc12", *"時々テスト"]),
        ("我有 2 本书!", ["我", "有", "2", "本", "书"]),
        ("𠮷野家", ["𠮷", "野", "家"]),
        ("ที่ ไหน", ["ที่", "ไ", "ห", "น"]),
        ("\ud800 a", ["a"]),
    ],
)
def test_words(text, expected):
    assert words(text) == expected


@given(st.text(), st.text())
def test_a_space_parts_words(left, right):
    assert words(f"{left} {right}") == words(left) + words(right)
    assert "" not in words(left)


@given(st.text(alphabet=st.characters(codec="latin-1")))
def test_case_and_composition_do_not_matter(text):
    assert words(text.lower()) == words(text) == words(unicodedata.normalize("NFD", text))
