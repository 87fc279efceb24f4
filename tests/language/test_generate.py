"""Continuing a prompt: what is written, piece by piece, and why."""

from __future__ import annotations

import json

import pytest
import torch
import transformers

from knn_seq import KnnSeqError, Translator
from knn_seq.language import generate

PROMPT = "the old king"


@pytest.fixture(scope="module")
def translator(text_store):
    return Translator(text_store, device="cpu", beam_size=1, max_length=20)


def test_without_neighbours_it_is_transformers(translator, language_model):
    network = transformers.AutoModelForCausalLM.from_pretrained(language_model())
    tokenizer = transformers.AutoTokenizer.from_pretrained(language_model())
    tokens = tokenizer(PROMPT, return_tensors="pt")["input_ids"]
    wanted = network.generate(tokens, max_new_tokens=20, do_sample=False)
    made = generate(translator, PROMPT, weight=0.0)
    assert made.output.tokens == wanted[0, tokens.shape[1] :].tolist()
    assert PROMPT + made.text == tokenizer.decode(wanted[0], skip_special_tokens=True)


@pytest.mark.parametrize("options", [{}, {"sample": True, "seed": 3}, {"pointers": 1}, {"beam_size": 3}])
def test_pieces_are_the_text(translator, options):
    pieces = []
    made = generate(translator, PROMPT, pieces.append, **options)
    assert "".join(pieces) == made.text == str(made.output)
    assert made.text.startswith(" ")
    assert (len(pieces) == 1) == ("beam_size" in options)
    again = generate(translator, PROMPT, None, **options)
    assert again.text == made.text


def test_a_long_prompt_loses_its_beginning(translator):
    long = " ".join([PROMPT] * 100)
    made = generate(translator, long)
    window = translator.model.window
    assert len(made.prompt.tokens) + len(made.output.tokens) <= window
    assert made.prompt.tokens == translator.model.tokenizer.encode_text(long)[-len(made.prompt.tokens) :]
    assert len(made.output.tokens) == 20


def test_nothing_cannot_be_continued(translator):
    with pytest.raises(KnnSeqError, match="no prompt to continue"):
        generate(translator, "")


def test_characters_of_several_bytes_are_not_torn(translator, monkeypatch):
    tokenizer = translator.model.tokenizer
    tokens = tokenizer.encode_text("é日本")
    assert len(tokens) > 3

    def forced(sources, decoding, hook):
        from knn_seq.models import Hypothesis, Step

        for place in range(len(tokens) + 1):
            log_probs = torch.zeros(1, 500)
            prefixes = torch.tensor([tokens[:place]], dtype=torch.int64)
            hook(Step(torch.zeros(1, translator.model.dimension), log_probs, prefixes, torch.zeros(1)))
        return [[Hypothesis(tokens, 0.0)]]

    monkeypatch.setattr(translator.model, "generate", forced)
    pieces = []
    assert generate(translator, PROMPT, pieces.append, weight=0.0).text == "é日本"
    assert pieces == ["é", "日", "本"]


def test_command(text_store, knn_seq):
    common = ("generate", text_store.path, PROMPT, "--max-length", "12", "--combiner", "fixed", "--weight", "0.9")
    code, out, err = knn_seq(*common)
    assert code == 0, err
    assert out.startswith(PROMPT + " ")
    code, explained, err = knn_seq(*common, "--explain", "text")
    assert code == 0, err
    assert explained.startswith(out)
    assert "changed" in explained
    assert "[" in explained
    code, as_json, err = knn_seq(*common, "--explain", "json")
    assert code == 0, err
    described = json.loads(as_json)
    assert PROMPT + described["translation"] + "\n" == out
    assert described["source"] == PROMPT
    assert all(token["neighbours"] for token in described["tokens"])
    assert knn_seq(*common, "--explain-neighbours", "2")[0] == 2
