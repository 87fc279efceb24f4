"""The network with small random weights: against a slow reference, and the promises of cache, padding and search."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from firefox_files import DECODER_LAYERS, ENCODER_LAYERS, HEADS, OPTIONS, D, random_tensors
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForSeq2SeqLM

from knn_seq.models.batching import pad
from knn_seq.models.firefox_network import FirefoxCache, FirefoxConfig, FirefoxForTranslation
from knn_seq.models.firefox_network.marian_file import MarianFile
from knn_seq.models.firefox_network.weights import convert

VOCABULARY = 23
CPU = torch.device("cpu")
SOURCES = [[5, 9, 3, 14, 0], [7, 0], [2, 2, 11, 20, 19, 8, 0]]
IDS = st.lists(st.integers(1, VOCABULARY - 1), max_size=9)


def small_model(seed: int = 0) -> FirefoxForTranslation:
    torch.manual_seed(seed)
    sizes = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "attention_heads": 4}
    config = FirefoxConfig(vocab_size=VOCABULARY, encoder_ffn_dim=24, decoder_ffn_dim=20, **sizes)
    model = FirefoxForTranslation(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))  # the usual small weights would make all outputs alike
    return model


@pytest.fixture(scope="module")
def model():
    return small_model()


@pytest.fixture(scope="module")
def batch():
    return dict(zip(("input_ids", "attention_mask"), pad(SOURCES, 0, CPU), strict=True))


def reference_logits(t: dict[str, np.ndarray], source: list[int], target: list[int]) -> np.ndarray:
    """The architecture as it is written down, one sentence at a time, straight from Marian's tensors."""

    def position(n):
        half = D // 2
        angles = n * 10000.0 ** (-np.arange(half) / (half - 1))
        return np.concatenate([np.sin(angles), np.cos(angles)])

    def norm(x, name):
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6) * t[f"{name}_scale"] + t[f"{name}_bias"]

    def attend(x, y, name):
        q, k, v = (s @ t[f"{name}_W{c}"] + t[f"{name}_b{c}"] for s, c in ((x, "q"), (y, "k"), (y, "v")))
        heads = []
        for h in np.split(np.arange(D), HEADS):
            scores = np.exp(q[:, h] @ k[:, h].T / np.sqrt(D / HEADS))
            heads.append(scores / scores.sum(-1, keepdims=True) @ v[:, h])
        return norm(x + np.concatenate(heads, -1) @ t[f"{name}_Wo"] + t[f"{name}_bo"], f"{name}_Wo_ln")

    def feed_forward(x, name):
        inner = np.maximum(x @ t[f"{name}_W1"] + t[f"{name}_b1"], 0)
        return norm(x + inner @ t[f"{name}_W2"] + t[f"{name}_b2"], f"{name}_ffn_ln")

    x = np.stack([t["Wemb"][token] * np.sqrt(D) + position(n) for n, token in enumerate(source)])
    for layer in range(1, ENCODER_LAYERS + 1):
        x = feed_forward(attend(x, x, f"encoder_l{layer}_self"), f"encoder_l{layer}_ffn")
    y = np.stack([position(n) + (t["Wemb"][token] * np.sqrt(D) if n else 0) for n, token in enumerate([0, *target])])
    for layer in range(1, DECODER_LAYERS + 1):
        name, c, outputs = f"decoder_l{layer}", np.zeros(D), []
        for y_t in y:
            f = 1 / (1 + np.exp(-(y_t @ t[f"{name}_rnn_Wf"] + t[f"{name}_rnn_bf"][0])))
            c = f * c + (1 - f) * (y_t @ t[f"{name}_rnn_W"])
            outputs.append(np.maximum(c, 0))
        y = norm(y + np.stack(outputs), f"{name}_rnn_ffn_ln")
        y = feed_forward(attend(y, x, f"{name}_context"), f"{name}_ffn")
    return y @ t["Wemb"].T + t["decoder_ff_logit_out_b"]


@settings(max_examples=15, deadline=None)
@given(source=IDS, target=IDS, seed=st.integers(0, 99))
def test_logits_are_those_of_the_written_architecture(tmp_path_factory, source, target, seed):
    tensors = random_tensors(VOCABULARY, seed)
    options = dict(line.split(": ") for line in OPTIONS.splitlines() if ": " in line)
    config, weights = convert(MarianFile(tmp_path_factory.getbasetemp() / "model.bin", tensors, options))
    model = FirefoxForTranslation(config).eval()
    assert model.load_state_dict(weights, strict=False).unexpected_keys == []
    with torch.no_grad():
        logits = model(torch.tensor([[*source, 0]]), decoder_input_ids=torch.tensor([[0, *target]])).logits[0]
    wide = {name: tensor.astype(np.float64) for name, tensor in tensors.items()}
    np.testing.assert_allclose(logits.numpy(), reference_logits(wide, [*source, 0], target), rtol=1e-3, atol=1e-3)


@settings(max_examples=20, deadline=None)
@given(targets=st.lists(IDS, min_size=1, max_size=20), cut=st.integers(1, 9))
def test_step_by_step_equals_teacher_forcing(model, targets, cut):
    ids, mask = pad([SOURCES[number % 3] for number in range(len(targets))], 0, CPU)
    target, _ = pad([[0, *target] for target in targets], 0, CPU)
    with torch.no_grad():
        complete = model(ids, mask, target).logits
        encoded = model.get_encoder()(ids, mask)
        first = model(attention_mask=mask, encoder_outputs=encoded, decoder_input_ids=target[:, :cut], use_cache=True)
        parts, cache = [first.logits], first.past_key_values
        for t in range(cut, target.shape[1]):
            assert cache.get_seq_length() == t
            parts.append(
                model(decoder_input_ids=target[:, t : t + 1], encoder_outputs=encoded, past_key_values=cache).logits
            )
    torch.testing.assert_close(torch.cat(parts, 1), complete, rtol=1e-4, atol=1e-4)


@settings(max_examples=20, deadline=None)
@given(sources=st.lists(IDS, min_size=1, max_size=5), targets=st.lists(IDS, min_size=5, max_size=5))
def test_padding_changes_nothing(model, sources, targets):
    ids, mask = pad([[*source, 0] for source in sources], 0, CPU)
    target, _ = pad([[0, *target] for target in targets[: len(sources)]], 0, CPU)
    with torch.no_grad():
        together = model(ids, mask, target).logits
        for row, (source, alone) in enumerate(zip(sources, targets, strict=False)):
            logits = model(torch.tensor([[*source, 0]]), decoder_input_ids=torch.tensor([[0, *alone]])).logits[0]
            torch.testing.assert_close(together[row, : len(alone) + 1], logits, rtol=1e-4, atol=1e-4)


def test_first_decoder_id_is_not_looked_at(model, batch):
    with torch.no_grad():
        zero, other = (model(**batch, decoder_input_ids=torch.tensor([[first, 4, 6]] * 3)).logits for first in (0, 13))
    assert torch.equal(zero, other)


def test_position_beyond_the_first_table(model):
    target = torch.randint(1, VOCABULARY, (1, 700))
    ids = torch.tensor([[3, 0]])
    with torch.no_grad():
        complete = copy.deepcopy(model)(ids, decoder_input_ids=target).logits
        start = model(ids, decoder_input_ids=target[:, :510], use_cache=True)
        rest = model(ids, decoder_input_ids=target[:, 510:], past_key_values=start.past_key_values)
    torch.testing.assert_close(torch.cat([start.logits, rest.logits], 1), complete, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("beams", [1, 2, 5])
def test_search_with_the_cache_equals_search_without(model, batch, beams):
    arguments = {"num_beams": beams, "max_new_tokens": 15, "num_return_sequences": beams, "output_scores": True}
    cached, plain = (
        model.generate(**batch, **arguments, output_logits=True, return_dict_in_generate=True, use_cache=use_cache)
        for use_cache in (True, False)
    )
    assert torch.equal(cached.sequences, plain.sequences)
    assert len({tuple(row) for row in cached.sequences.tolist()}) > 1
    assert isinstance(cached.past_key_values, FirefoxCache)
    for kind in ("scores", "logits"):
        torch.testing.assert_close(getattr(cached, kind), getattr(plain, kind), rtol=1e-4, atol=1e-4)


def test_greedy_search_follows_teacher_forcing(model, batch):
    generated = model.generate(**batch, max_new_tokens=12)
    with torch.no_grad():
        best = model(**batch, decoder_input_ids=generated[:, :-1]).logits.argmax(-1)
    for row, choice in zip(generated[:, 1:].tolist(), best.tolist(), strict=True):
        end = row.index(0) + 1 if 0 in row else len(row)
        assert row[:end] == choice[:end]


def test_beam_search_does_not_mix_sentences(model, batch):
    together = model.generate(**batch, num_beams=4, max_new_tokens=10, num_return_sequences=2)
    for number, source in enumerate(SOURCES):
        ids = torch.tensor([source])
        alone = model.generate(
            ids, attention_mask=torch.ones_like(ids), num_beams=4, max_new_tokens=10, num_return_sequences=2
        )
        rows = together[2 * number : 2 * number + 2]
        width = max(rows.shape[1], alone.shape[1])
        padded = [torch.nn.functional.pad(part, (0, width - part.shape[1])) for part in (rows, alone)]
        assert torch.equal(*padded)


def test_sampling(model, batch):
    torch.manual_seed(1)
    sampled = model.generate(**batch, do_sample=True, num_return_sequences=4, max_new_tokens=8)
    assert sampled.shape[0] == 12
    assert len({tuple(row) for row in sampled.tolist()}) > 3


def test_cache_follows_rows_that_are_cut_and_copied(model, batch):
    rows = torch.tensor([2, 0, 0, 2, 1])
    target = torch.tensor([[0, 4], [0, 6], [0, 8]])
    more = torch.randint(1, VOCABULARY, (5, 3))
    with torch.no_grad():
        cache = model(**batch, decoder_input_ids=target, use_cache=True).past_key_values
        cache.reorder_cache(rows)
        logits = model(**batch, decoder_input_ids=more, past_key_values=cache).logits
        chosen = {name: tensor[rows] for name, tensor in batch.items()}
        complete = model(**chosen, decoder_input_ids=torch.cat([target[rows], more], 1)).logits
    torch.testing.assert_close(logits, complete[:, 2:], rtol=1e-4, atol=1e-4)


def test_hook_on_the_last_feed_forward_block_sees_the_key(model, batch):
    seen = []
    handle = model.get_decoder().layers[-1].fc1.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        model.get_decoder()(
            torch.zeros(3, 4, dtype=torch.long), model.get_encoder()(**batch)[0], batch["attention_mask"]
        )
    handle.remove()
    assert [key.shape for key in seen] == [(3, 4, 16)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("beams", [1, 3])
def test_half_precision(model, batch, dtype, beams):
    low = copy.deepcopy(model).to(dtype)
    target = torch.tensor([[0, 4, 6, 3]] * 3)
    with torch.no_grad():
        logits, exact = low(**batch, decoder_input_ids=target).logits, model(**batch, decoder_input_ids=target).logits
    assert logits.dtype == dtype
    assert (logits.float() - exact).abs().max() < 0.05 * exact.abs().max()
    assert low.generate(**batch, num_beams=beams, max_new_tokens=6).shape[0] == 3


def test_save_and_load(model, batch, tmp_path):
    model.save_pretrained(tmp_path)
    target = torch.tensor([[0, 4, 6, 3]] * 3)
    for loader in (FirefoxForTranslation, AutoModelForSeq2SeqLM):
        loaded = loader.from_pretrained(tmp_path)
        assert isinstance(loaded, FirefoxForTranslation)
        assert loaded.config.to_diff_dict() == model.config.to_diff_dict()
        assert loaded.lm_head.weight is loaded.shared.weight
        with torch.no_grad():
            assert torch.equal(
                loaded(**batch, decoder_input_ids=target).logits, model(**batch, decoder_input_ids=target).logits
            )
        assert torch.equal(
            loaded.generate(**batch, num_beams=3, max_new_tokens=9),
            model.generate(**batch, num_beams=3, max_new_tokens=9),
        )


def test_plain_tuples(model, batch):
    with torch.no_grad():
        output = model(**batch, decoder_input_ids=torch.tensor([[0]] * 3), return_dict=False)
        expected = model(**batch, decoder_input_ids=torch.tensor([[0]] * 3))
    assert isinstance(output, tuple)
    assert torch.equal(output[0], expected.logits)


def test_gradients_reach_all_weights(batch):
    model = small_model(3)
    with torch.inference_mode():  # what is kept from here must not stand in the way of training
        model(**batch, decoder_input_ids=torch.tensor([[0, 4]] * 3))
    model(**batch, decoder_input_ids=torch.tensor([[0, 4, 6, 3]] * 3)).logits.logsumexp(-1).sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())
