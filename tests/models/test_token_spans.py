"""Which part of a text each token stands for."""

from __future__ import annotations

import pytest

from knn_seq.models import load_model
from knn_seq.models.token_spans import output_spans, source_spans
from knn_seq.settings import ModelSettings


@pytest.fixture(scope="module")
def tokenizer():
    return load_model(ModelSettings("firefox:pt-en", device="cpu")).tokenizer


@pytest.mark.parametrize("text", ["Clique em “Salvar” (XX1), não 100% agora.", "a", "  dois   espaços\tnovos "])
def test_each_source_token_is_part_of_the_words_that_it_is_said_to_be(tokenizer, text):
    [tokens] = tokenizer.encode_sources([text])
    spans = source_spans(text, tokens, tokenizer)
    assert len(spans) == len(tokens)
    assert spans[-1] is None  # the end
    for token, span in zip(tokens[:-1], spans, strict=False):
        piece = tokenizer.token(token).replace("▁", "")
        assert span is not None
        assert piece in text[slice(*span)] or not piece.isalnum()


def test_the_words_of_both_sides_are_found(tokenizer):
    text = "O gato preto dorme."
    [tokens] = tokenizer.encode_sources([text])
    assert {text[slice(*span)] for span in source_spans(text, tokens, tokenizer) if span} == {*text[:-1].split(), "."}
    assert "".join(dict.fromkeys(text[a:b] for _, a, b in output_spans(text, tokens, tokenizer))) == "Ogatopretodorme."
