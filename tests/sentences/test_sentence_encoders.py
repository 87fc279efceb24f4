from __future__ import annotations

import sys

import pytest
import torch
import transformers
from tiny_models import DECODER_ONLY, NETWORKS, make_model

from knn_seq.errors import InvalidSetting, MissingLibrary
from knn_seq.models import Source
from knn_seq.sentences.base import sentence_search


def check_batches(search, sources, tolerance):
    """Every sentence has the same vector alone, beside others and in another order."""
    together = search.encode(sources)
    assert together.dtype == torch.float32
    assert together.shape[0] == len(sources)
    for row, source in zip(together, sources, strict=True):
        torch.testing.assert_close(search.encode([source])[0], row, rtol=0, atol=tolerance)
    torch.testing.assert_close(search.encode(sources[::-1]).flip(0), together, rtol=0, atol=tolerance)
    assert torch.pdist(together).min() > 100 * tolerance, "vectors that are all the same would pass too"


@pytest.mark.parametrize("kind", sorted(NETWORKS))
def test_the_mean_of_the_translation_models_own_states(kind, sources):
    model = make_model(kind)
    search = sentence_search("encoder", model)
    asked = sources(9, seed=5)
    found = search.encode(asked)
    for row, source in zip(found, asked, strict=True):
        tokens = torch.tensor([source.tokens])
        with torch.no_grad():
            if kind in DECODER_ONLY:
                states = model.network(input_ids=tokens, output_hidden_states=True).hidden_states[-1][0]
            else:
                output = model.network(input_ids=tokens, decoder_input_ids=torch.tensor([[2]]))
                states = output.encoder_last_hidden_state[0]
        expected = sum(states) / len(source.tokens)
        torch.testing.assert_close(row, expected, rtol=0, atol=1e-5)
    check_batches(search, asked, 1e-5)


@pytest.mark.parametrize("pooling", ["", ":mean", ":first"])
@pytest.mark.parametrize("kind", ["Bert", "Roberta"])
def test_any_encoder_of_transformers(kind, pooling, model, save_encoder, sources):
    network, path = save_encoder(kind)
    search = sentence_search(f"transformers:{path}{pooling}", model)
    asked = sources(9, seed=6)
    found = search.encode(asked)
    for row, source in zip(found, asked, strict=True):
        with torch.no_grad():
            states = network(input_ids=torch.tensor([source.tokens])).last_hidden_state[0]
        expected = states[0] if pooling == ":first" else sum(states) / len(source.tokens)
        torch.testing.assert_close(row, expected, rtol=0, atol=1e-5)
    check_batches(search, asked, 1e-6)


@pytest.mark.parametrize("kind", ["t5", "marian"])
def test_only_the_encoder_of_an_encoder_decoder(kind, model, save_model, sources):
    path = save_model(kind)
    search = sentence_search(f"transformers:{path}", model)
    asked = sources(9, seed=7)
    encoder = transformers.AutoModelForSeq2SeqLM.from_pretrained(path).get_encoder().eval()
    for row, source in zip(search.encode(asked), asked, strict=True):
        with torch.no_grad():
            states = encoder(input_ids=torch.tensor([source.tokens])).last_hidden_state[0]
        torch.testing.assert_close(row, sum(states) / len(source.tokens), rtol=0, atol=1e-5)
    check_batches(search, asked, 1e-6)


@pytest.mark.parametrize(("kind", "positions"), [("Bert", 20), ("Roberta", 18)])
def test_a_long_sentence_is_cut_to_what_the_encoder_can_read(kind, positions, model, save_encoder):
    network, path = save_encoder(kind)
    numbers = [4 + place % 50 for place in range(70)]
    found = sentence_search(f"transformers:{path}", model).encode([Source(" ".join(map(str, numbers)), [])])
    with torch.no_grad():
        states = network(input_ids=torch.tensor([[*numbers[: positions - 1], 2]])).last_hidden_state[0]
    torch.testing.assert_close(found[0], states.mean(dim=0), rtol=0, atol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_an_empty_sentence_has_a_vector_too(pooling, model, save_model, save_encoder):
    for path in (save_encoder("Bert")[1], save_model("gpt2")):
        search = sentence_search(f"transformers:{path}:{pooling}", model)
        assert search.encode([Source("", []), Source("5 6", [])]).isfinite().all()


def test_no_tokens_at_all_have_a_vector_too(model, save_encoder, tmp_path):
    network, path = save_encoder("Bert")
    network.save_pretrained(tmp_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    tokenizer.backend_tokenizer.post_processor = None  # no end of sentence
    tokenizer.save_pretrained(tmp_path)
    search = sentence_search(f"transformers:{tmp_path}", model)
    together = search.encode([Source("", []), Source("5 6", [])])
    assert together.isfinite().all()
    torch.testing.assert_close(together[1], search.encode([Source("5 6", [])])[0], rtol=0, atol=1e-5)


def test_an_encoder_is_loaded_when_it_is_needed(model, tmp_path):
    search = sentence_search(f"transformers:{tmp_path}/no-such-encoder:first", model)
    with pytest.raises(InvalidSetting, match=r"encoder '.*/no-such-encoder' .* cannot be loaded: ."):
        search.encode([Source("5", [])])


def test_a_damaged_encoder_is_refused_in_a_sentence(model, save_encoder, tmp_path):
    network, _ = save_encoder("Bert")
    network.save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-50])
    with pytest.raises(InvalidSetting, match="cannot be loaded") as caught:
        sentence_search(f"transformers:{tmp_path}", model).encode([Source("5", [])])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("spec", ["transformers", "transformers:", "transformers::first", "transformers:mean"])
def test_transformers_needs_a_name(spec, model):
    with pytest.raises(InvalidSetting, match=r"write transformers:NAME, or transformers:NAME:first"):
        sentence_search(spec, model)


def test_sentence_transformers(model, static_embedding, sources):
    vectors, path = static_embedding
    search = sentence_search(f"sentence-transformers:{path}", model)
    asked = sources(40, seed=8)
    found = search.encode(asked)
    found += 0  # the tensor may be changed
    for row, source in zip(found, asked, strict=True):
        numbers = [int(number) for number in source.text.split()]
        torch.testing.assert_close(row, torch.from_numpy(vectors[numbers].mean(axis=0)), rtol=0, atol=1e-6)
    check_batches(search, asked[:9], 1e-6)


def test_sentence_transformers_needs_a_name(model):
    with pytest.raises(InvalidSetting, match="write sentence-transformers:NAME"):
        sentence_search("sentence-transformers", model)


def test_without_sentence_transformers_a_sentence_says_what_to_install(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingLibrary, match=r"pip install knn-seq\[sentence-transformers\]"):
        sentence_search("sentence_transformers:any", model)


def test_a_folder_without_a_sentence_transformer_is_refused_in_a_sentence(model, static_embedding, tmp_path):
    search = sentence_search(f"sentence_transformers:{tmp_path}/nothing", model)
    with pytest.raises(InvalidSetting, match="cannot be loaded") as caught:
        search.encode([Source("5", [])])
    assert "\n" not in str(caught.value)
