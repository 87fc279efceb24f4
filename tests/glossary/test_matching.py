"""Terms in sources and targets in translations, against a slow and obvious search."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knn_seq.glossary import Glossary, Term
from knn_seq.glossary.words import junction, words_of

WORDS = st.sampled_from(["ab", "cd", "e-f", "É", "é", "x", "y"])
TEXTS = st.lists(WORDS, min_size=1, max_size=9).map(" ".join)


def found(terms, text, source="xx", target="xx"):
    return [(one.start, one.end, one.terms[0].target) for one in Glossary(terms).finder(source, target).find(text)]


def slow_matches(terms, text):
    """Every place of every source, by a regular expression; the longest first, and none that overlaps."""
    places = []
    for term in terms:
        pattern = rf"(?<!\w){re.escape(term.source)}(?!\w)"
        places += [
            (match.start() - match.end(), match.start(), term)
            for match in re.finditer(f"(?={pattern})", text, re.IGNORECASE)
            for match in [re.compile(pattern, re.IGNORECASE).match(text, match.start())]
        ]
    kept, taken = [], set()
    for negative_length, start, term in sorted(places, key=lambda place: place[:2]):
        place = range(start, start - negative_length)
        if taken.isdisjoint(place):
            taken.update(place)
            kept.append((place.start, place.stop, term.target))
    return sorted(kept)


@given(st.lists(TEXTS, min_size=1, max_size=5, unique_by=str.lower), TEXTS)
def test_terms_are_found_as_by_the_slow_search(sources, text):
    terms = [Term(source, f"target {number}") for number, source in enumerate(sources)]
    assert found(terms, text) == slow_matches(terms, text)


def test_of_overlapping_terms_the_longest_counts():
    terms = [Term("a b", "short"), Term("b c d", "long"), Term("a", "alone")]
    assert [target for *_, target in found(terms, "a b c d")] == ["alone", "long"]


def test_a_part_of_a_word_is_no_term():
    assert found([Term("arte", "art")], "partes da arte-final; artesanato") == [(10, 14, "art")]


def test_inflected_forms_have_the_stem_of_the_term():
    terms = [Term("oferta de paz", "peace offering")]
    assert len(found(terms, "Ofertas de paz e oferta de paz.", "pt_BR", "en")) == 2
    assert len(found(terms, "Ofertas de paz e oferta de paz.")) == 1


def test_listed_forms_are_the_only_ones():
    terms = [Term("oferta", "offering", source_forms=("ofertinha",))]
    assert len(found(terms, "oferta, ofertas, ofertinha", "pt", "en")) == 2


def test_a_case_sensitive_term_is_found_as_it_is_written():
    assert found([Term("Java", "Java", case_sensitive=True)], "java JAVA Java") == [(10, 14, "Java")]


def test_the_spelling_that_is_most_alike_counts():
    terms = [Term("may", "pode"), Term("May", "maio", case_sensitive=True)]
    assert [target for *_, target in found(terms, "In May it may rain")] == ["maio", "pode"]


def test_characters_of_scripts_without_spaces_are_words():
    assert found([Term("文件", "file")], "打开文件夹") == [(2, 4, "file")]


def test_decomposed_letters_are_the_same():
    assert len(found([Term("café", "coffee")], "um cafe\u0301 bom")) == 1


def check(terms, source):
    finder = Glossary(terms).finder("pt", "en")
    return finder.check(finder.find(source))


OFFERING = Term("oferta", "offering", forbidden=("gift", "burnt"))
BURNT = Term("holocausto", "burnt offering")


def test_a_term_is_wanted_as_often_as_the_source_has_it():
    twice = check([OFFERING], "a oferta e as ofertas")
    assert twice.missing("the offering") == [1]
    assert twice.missing("the offering and the offerings") == []
    assert twice.missing("nothing") == [0, 1]


def test_one_place_of_a_translation_serves_one_term():
    both = check([OFFERING, BURNT], "a oferta e o holocausto")
    assert both.missing("a burnt offering") == [0]
    assert both.missing("an offering") == [1]
    assert both.missing("a burnt offering and another burnt offering") == []


def test_any_translation_of_the_same_source_will_do():
    either = check([Term("banco", "bank"), Term("banco", "bench")], "o banco")
    assert either.missing("the bench") == either.missing("the banks") == []
    assert either.occurrences[0].target_forms == ("bank", "bench")


def test_what_is_forbidden_is_found_unless_it_is_part_of_a_target():
    both = check([OFFERING, BURNT], "a oferta e o holocausto")
    uses = both.uses("A gift, an offering and a burnt offering")
    assert [(use.target, use.applied, use.forbidden) for use in uses] == [
        ("offering", False, "gift"),
        ("burnt offering", True, ""),
    ]


def test_a_term_in_large_letters_has_its_target_in_large_letters():
    finder = Glossary([Term("oferta", "offering"), Term("ONU", "UN")]).finder("pt", "en")
    assert [one.target_forms for one in finder.find("OFERTA da ONU")] == [("OFFERING",), ("UN",)]


@pytest.mark.parametrize(
    ("text", "longer", "before"),
    [
        ("", "offer", ""),
        ("an", "an offer", " "),
        ("an offer", "an offering", None),
        ("(", "(offer", "("),
        ("Ir-", "Ir-Moab", "-"),
        ("an offer", "an offer.", " "),
        ("打开", "打开文", " "),
    ],
)
def test_what_stands_before_a_new_word(text, longer, before):
    assert junction(text, longer) == before


@given(st.text(max_size=40))
def test_words_are_where_they_say(text):
    assert all(text[word.start : word.end] == word.text for word in words_of(text))
    assert "".join(text.split()) == "".join("".join(word.text for word in words_of(text)).split())


def test_a_function_word_is_no_form_of_another_word():
    finder = Glossary([Term("vocais", "vocal")], "pt", "en").finder("pt", "en")
    assert not finder.find("Você deve sair.")  # a stemmer cuts both to voc
    assert [one.text for one in finder.find("O vocal e os vocais.")][-1] == "vocais"
