"""The whole, with a real model: known translations, and what a few examples make of them."""

from __future__ import annotations

import pytest

from knn_seq import Datastore, Translator
from knn_seq.explain import explain

EXAMPLES = [
    ("No princípio criou Deus os céus e a terra.", "In the beginning God created the heaven and the earth."),
    ("Disse Deus: haja luz. E houve luz.", "And God said, Let there be light: and there was light."),
    ("Em verdade vos digo que vigieis.", "Verily I say unto you, Watch ye."),
    ("Em verdade te digo isto.", "Verily I say unto thee this thing."),
    ("Use { e } no texto.", "Use { and } in the text."),
]


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    folder = tmp_path_factory.mktemp("adaptation")
    (folder / "train.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in EXAMPLES))
    store = Datastore.build(folder / "store", "firefox:pt-en", folder / "train.tsv")
    return Translator(store, combiner="fixed", k=2, temperature=50, weight=0.8)


def test_the_model_alone_translates_as_it_always_did(translator):
    got = translator.translate(["O gato está em casa.", "Em verdade vos digo uma coisa."], weight=0)
    assert got == ["The cat is at home.", "Verily I tell you one thing."]


def test_examples_are_followed(translator):
    got = translator.translate([source for source, _ in EXAMPLES[:4]])
    assert got == [target for _, target in EXAMPLES[:4]]


def test_a_new_sentence_takes_the_words_of_the_examples(translator):
    (translation,) = translator.translate(["Em verdade vos digo uma coisa."])
    assert translation.startswith("Verily I say unto")
    sentences = [number for number, _ in explain(translator, [translation])[0].sentences()]
    assert set(sentences[:2]) == {2, 3}


def test_neighbours_cannot_vote_for_what_the_vocabulary_lacks(translator):
    (translation,) = translator.translate([EXAMPLES[4][0]])
    assert "⁇" not in translation
    assert "text" in translation
