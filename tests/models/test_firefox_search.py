"""Our own search against generate() of Transformers on the same weights: the outputs are the same to the last token."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import NumberTokenizer
from transformers import GenerationConfig, MarianConfig

from knn_seq.models.encoder_decoder import EncoderDecoderModel
from knn_seq.models.firefox import FirefoxModel
from knn_seq.models.firefox_network import FirefoxForTranslation, FirefoxNetwork
from knn_seq.models.firefox_network.sizes import FirefoxSizes
from knn_seq.settings import ModelSettings

VOCABULARY, BANNED = 23, 1
CPU = ModelSettings("", device="cpu", dtype="float32")
SIZES = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "attention_heads": 4}
SOURCES = st.lists(
    st.lists(st.integers(2, VOCABULARY - 1), max_size=9).map(lambda source: [*source, 0]), min_size=1, max_size=5
)
WEIGHTS = st.tuples(st.integers(0, 99), st.sampled_from([0.3, 0.6, 1.0]), st.sampled_from([-1.0, 1.0, 2.0, 3.0]))
ENDING = (4, 0.6, 2.0)  # weights whose outputs end at different steps


@pytest.fixture(scope="module")
def networks():
    """Ours, and the one that Transformers searches with, with the same weights."""
    sizes = FirefoxSizes(vocab_size=VOCABULARY, encoder_ffn_dim=24, decoder_ffn_dim=20, **SIZES)
    pair = FirefoxNetwork(sizes).eval(), FirefoxForTranslation(sizes).eval()
    for network in pair:
        network.generation_config.suppress_tokens = [BANNED]
    draw_weights(pair, ENDING)
    return pair


def draw_weights(networks, weights):
    seed, deviation, end = weights
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in networks[0].parameters():
            parameter.normal_(0, deviation)
        networks[0].lm_head.bias[0] = end
    networks[1].load_state_dict(networks[0].state_dict())


def both(networks, sources, weights=ENDING, hook=None, **arguments):
    """What our search finds with our network, and generate() with that of Transformers."""
    draw_weights(networks, weights)
    ours = FirefoxModel(networks[0], NumberTokenizer(), "", CPU)
    theirs = EncoderDecoderModel(networks[1], NumberTokenizer(), "", CPU, [0])
    config = GenerationConfig(**arguments)
    found = ours.generate(sources, config, hook)
    return found, theirs._generate(sources, config, hook)


def check(ours, theirs):
    assert [[one.tokens for one in nbest] for nbest in ours] == [[one.tokens for one in nbest] for nbest in theirs]
    for nbest, wanted in zip(ours, theirs, strict=True):
        assert [one.score for one in nbest] == pytest.approx([one.score for one in wanted], abs=1e-3)


@settings(max_examples=20, deadline=None)
@given(sources=SOURCES, weights=WEIGHTS, longest=st.integers(1, 14))
def test_greedy(networks, sources, weights, longest):
    ours, theirs = both(networks, sources, weights, max_new_tokens=longest)
    check(ours, theirs)
    assert not any(BANNED in best.tokens for (best,) in ours)


@settings(max_examples=40, deadline=None)
@given(
    sources=SOURCES,
    weights=WEIGHTS,
    longest=st.integers(1, 14),
    beams=st.integers(2, 6),
    nbest=st.integers(1, 6),
    penalty=st.sampled_from([0.0, 0.6, 1.0, 2.0, -1.0]),
)
def test_beam_search(networks, sources, weights, longest, beams, nbest, penalty):
    arguments = {"num_beams": beams, "num_return_sequences": min(nbest, beams), "length_penalty": penalty}
    ours, theirs = both(networks, sources, weights, max_new_tokens=longest, **arguments)
    check(ours, theirs)
    assert not any(BANNED in one.tokens for nbest in ours for one in nbest)


@pytest.mark.parametrize("seed", range(6))
def test_sentences_are_done_one_after_the_other(networks, seed):
    """What a sentence that is done would find later, while others continue, does not count."""
    torch.manual_seed(seed)
    sources = [[*torch.randint(2, VOCABULARY, (length,)).tolist(), 0] for length in (1, 3, 5, 8, 9, 2)]
    for end in (2.0, 3.0, 4.0):
        arguments = {"num_beams": 3, "num_return_sequences": 3, "length_penalty": 2.0}
        check(*both(networks, sources, (seed, 0.8, end), max_new_tokens=25, **arguments))


def test_beams_end_at_different_steps(networks):
    outputs, _ = both(networks, [[5, 9, 3, 14, 0], [7, 0]], max_new_tokens=14, num_beams=4, num_return_sequences=4)
    assert len({len(one.tokens) for nbest in outputs for one in nbest}) > 2


@pytest.mark.parametrize("beams", [1, 4])
def test_a_hook_sees_and_changes_the_same_steps(networks, beams):
    sources = [[5, 9, 3, 14, 0], [7, 0], [2, 2, 11, 20, 19, 8, 0]]

    def change(step):
        generated = torch.where(step.prefixes < 0, 0, step.prefixes).sum(1)
        pull = torch.zeros_like(step.log_probs)
        pull[torch.arange(len(pull)), 2 + (generated + (step.queries[:, 0] > 0)) % 7] = 3.0
        return torch.log_softmax(step.log_probs + pull, dim=1)

    arguments = {"num_beams": beams, "num_return_sequences": beams, "max_new_tokens": 10}
    ours, theirs = both(networks, sources, (3, 0.6, -1.0), change, **arguments)
    check(ours, theirs)
    assert ours != both(networks, sources, (3, 0.6, -1.0), **arguments)[0]


@pytest.mark.parametrize("beams", [1, 3])
def test_sentences_that_enter_while_others_are_under_way(networks, beams):
    draw_weights(networks, ENDING)
    torch.manual_seed(0)
    sources = [[*torch.randint(2, VOCABULARY, (length % 7,)).tolist(), 0] for length in range(20)]
    model, config = FirefoxModel(networks[0], NumberTokenizer(), "", CPU), GenerationConfig(num_beams=beams)
    alone = [model.generate([source], config)[0] for source in sources]
    for size in (1, 3, 8):
        found = dict(model.generate_stream(sources, config, None, size))
        check([found[number] for number in range(len(sources))], alone)


def test_sizes_become_a_configuration(networks):
    config = networks[1].config
    assert not isinstance(config, MarianConfig)
    assert (config.d_model, config.vocab_size, config.pad_token_id, config.decoder_start_token_id) == (16, 23, 0, 0)
    fresh = FirefoxForTranslation(config)
    assert 0.001 < float(fresh.shared.weight.detach().std()) < 0.1, "a new network is drawn at random"
    assert fresh.lm_head.weight is fresh.shared.weight is fresh.encoder.embed_tokens.weight
