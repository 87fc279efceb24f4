"""Where a model looks, against the weights that its own eager attention tells."""

from __future__ import annotations

import pytest
import torch
from tiny_models import DECODER_ONLY, END, NETWORKS, make_model, make_network

from knn_seq.models import TokenPair, load_model
from knn_seq.settings import DecodingSettings, ModelSettings

SOURCES = [[9, 10, 11, 12, END], [13, 14, END], [20, END]]


class Recorder:
    """A step hook that changes nothing."""

    wants_attention = True

    def __init__(self):
        self.steps = []

    def __call__(self, step):
        self.steps.append((step.prefixes.clone(), step.sentences, step.attention))
        return step.log_probs


def eager_weights(network, prefix, source, generated):
    """The mean of the last layer's heads, or for Marian the first head, at the last position."""
    output = network(
        input_ids=torch.tensor([source]),
        attention_mask=torch.ones(1, len(source), dtype=torch.int64),
        decoder_input_ids=torch.tensor([[*prefix, *generated]]),
        output_attentions=True,
        use_cache=False,
    )
    weights = output.cross_attentions[-1][0, :, -1]  # (heads, source length)
    return weights[0] if network.config.model_type == "marian" else weights.mean(dim=0)


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("kind", [kind for kind in NETWORKS if kind not in DECODER_ONLY])
@torch.no_grad()
def test_attention_is_that_of_the_network(kind, beams):
    model, eager = make_model(kind), make_network(kind)
    if hasattr(eager, "set_attn_implementation") and kind != "fsmt":
        eager.set_attn_implementation("eager")
    hook = Recorder()
    model.generate(SOURCES, DecodingSettings(beam_size=beams, max_length=5), hook)
    assert len(hook.steps) > 1
    for prefixes, sentences, attention in hook.steps:
        assert attention.shape == (len(prefixes), max(map(len, SOURCES)))
        for row, sentence in enumerate(sentences.tolist()):
            if END in prefixes[row]:
                continue
            source = SOURCES[sentence]
            wanted = eager_weights(eager, model.prefix, source, prefixes[row].tolist())
            torch.testing.assert_close(attention[row, : len(source)], wanted, atol=1e-5, rtol=1e-4)
            assert not attention[row, len(source) :].any()


@pytest.mark.parametrize("kind", [kind for kind in NETWORKS if kind not in DECODER_ONLY])
@torch.no_grad()
def test_attention_of_given_outputs_is_that_of_the_network(kind):
    model, eager = make_model(kind), make_network(kind)
    if hasattr(eager, "set_attn_implementation") and kind != "fsmt":
        eager.set_attn_implementation("eager")
    pairs = [
        TokenPair(source, target) for source, target in zip(SOURCES, [[9, END], [8, 7, 10, END], [6]], strict=True)
    ]
    for pair, looks in zip(pairs, model.attention(pairs), strict=True):
        assert looks.shape == (len(pair.target), len(pair.source))
        for place, weights in enumerate(looks):
            wanted = eager_weights(eager, model.prefix, pair.source, pair.target[:place])
            torch.testing.assert_close(weights, wanted, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", sorted(DECODER_ONLY))
def test_a_model_without_cross_attention_tells_nothing(kind):
    hook, model = Recorder(), make_model(kind)
    assert model.attention([TokenPair([9, 10], [11, END])]) is None
    model.generate(SOURCES, DecodingSettings(beam_size=1, max_length=3), hook)
    assert all(attention is None for *_, attention in hook.steps)


def test_a_hook_that_does_not_ask_is_told_nothing():
    seen = []
    make_model("marian").generate(
        SOURCES,
        DecodingSettings(beam_size=1, max_length=3),
        lambda step: (seen.append(step.attention), step.log_probs)[1],
    )
    assert seen
    assert all(attention is None for attention in seen)


@pytest.mark.parametrize("beams", [1, 4])
def test_the_firefox_model_aligns_words(beams):
    model, hook = load_model(ModelSettings("firefox:pt-en", device="cpu")), Recorder()
    texts = ["O sacerdote viu o altar.", "A casa é grande e o jardim é pequeno."]
    sources = model.tokenizer.encode_sources(texts)
    outputs = model.generate(sources, DecodingSettings(beam_size=beams), hook)
    looked = {
        (sentence, tuple(prefix)): weights
        for prefixes, sentences, attention in hook.steps
        for prefix, sentence, weights in zip(prefixes.tolist(), sentences.tolist(), attention, strict=True)
    }
    for sentence, word, translation in ((0, "▁altar", "▁altar"), (1, "▁casa", "▁house"), (1, "▁pequeno", "▁small")):
        target = outputs[sentence][0].tokens
        place = [model.tokenizer.token(token) for token in target].index(translation)
        weights = looked[sentence, tuple(target[:place])]
        assert model.tokenizer.token(sources[sentence][int(weights.argmax())]) == word
        torch.testing.assert_close(weights.sum(), torch.tensor(1.0))
    pairs = [TokenPair(source, found[0].tokens) for source, found in zip(sources, outputs, strict=True)]
    for sentence, again in enumerate(model.attention(pairs)):
        for place, weights in enumerate(again):
            decoded = looked[sentence, tuple(pairs[sentence].target[:place])]
            torch.testing.assert_close(weights, decoded[: len(weights)], atol=0.05, rtol=0.0)  # int8 rounds otherwise
