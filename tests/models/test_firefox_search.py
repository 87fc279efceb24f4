"""Our own search against generate() of Transformers on the same weights: the outputs are the same to the last token."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import MarianConfig

from knn_seq.models.base import Step
from knn_seq.models.batching import pad
from knn_seq.models.decoding_hook import decoding_hook
from knn_seq.models.firefox_network import EncoderOutput, FirefoxForTranslation, FirefoxNetwork
from knn_seq.models.firefox_network.sizes import FirefoxSizes
from knn_seq.models.key_hook import KeyHook

VOCABULARY, BANNED = 23, 1
CPU = torch.device("cpu")
SIZES = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "attention_heads": 4}
SOURCES = st.lists(
    st.lists(st.integers(2, VOCABULARY - 1), max_size=9).map(lambda source: [*source, 0]), min_size=1, max_size=5
)
OURS = {"forced_bos_token_id": None, "max_length": None}


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


def both(networks, sources, weights=ENDING, **arguments):
    draw_weights(networks, weights)
    ids, mask = pad(sources, 0, CPU)
    outputs = []
    for network in networks:
        torch.manual_seed(7)
        outputs.append(network.generate(ids, attention_mask=mask, **arguments))
    return outputs


@settings(max_examples=25, deadline=None)
@given(sources=SOURCES, weights=WEIGHTS, longest=st.integers(1, 14))
def test_greedy(networks, sources, weights, longest):
    ours, theirs = both(networks, sources, weights, max_new_tokens=longest, **OURS)
    assert torch.equal(ours, theirs)
    assert not (ours[:, 1:] == BANNED).any()


@settings(max_examples=60, deadline=None)
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
    ours, theirs = both(networks, sources, weights, max_new_tokens=longest, early_stopping=False, **arguments, **OURS)
    assert torch.equal(ours, theirs)
    assert not (ours[:, 1:] == BANNED).any()


@pytest.mark.parametrize("seed", range(12))
def test_sentences_are_done_one_after_the_other(networks, seed):
    """What a sentence that is done would find later, while others continue, does not count."""
    torch.manual_seed(seed)
    sources = [[*torch.randint(2, VOCABULARY, (length,)).tolist(), 0] for length in (1, 3, 5, 8, 9, 2)]
    for end in (2.0, 3.0, 4.0):
        arguments = {"num_beams": 3, "num_return_sequences": 3, "length_penalty": 2.0, "early_stopping": False}
        ours, theirs = both(networks, sources, (seed, 0.8, end), max_new_tokens=25, **arguments)
        assert torch.equal(ours, theirs)


def test_beams_end_at_different_steps(networks):
    outputs, _ = both(networks, [[5, 9, 3, 14, 0], [7, 0]], max_new_tokens=14, num_beams=4, num_return_sequences=4)
    lengths = {row[1:].index(0) if 0 in row[1:] else 14 for row in outputs.tolist()}
    assert len(lengths) > 2


@settings(max_examples=30, deadline=None)
@given(
    sources=SOURCES,
    weights=WEIGHTS,
    copies=st.integers(1, 3),
    temperature=st.sampled_from([0.5, 1.0, 1.7]),
    top_k=st.sampled_from([0, 1, 4, 50]),
    top_p=st.sampled_from([1e-9, 0.1, 0.8, 1.0]),
)
def test_sampling_draws_the_same(networks, sources, weights, copies, temperature, top_k, top_p):
    drawing = {"do_sample": True, "temperature": temperature, "top_k": top_k, "top_p": top_p}
    ours, theirs = both(networks, sources, weights, max_new_tokens=8, num_return_sequences=copies, **drawing)
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("beams", [1, 3])
def test_the_encoder_need_not_run_again(networks, beams):
    ours, _ = networks
    ids, mask = pad([[5, 9, 3, 0], [7, 0]], 0, CPU)
    with torch.no_grad():
        (states,) = ours.get_encoder()(ids, mask)
    again = ours.generate(encoder_outputs=EncoderOutput(states), attention_mask=mask, num_beams=beams, max_new_tokens=9)
    assert torch.equal(again, ours.generate(ids, mask, num_beams=beams, max_new_tokens=9))


@pytest.mark.parametrize("beams", [1, 4])
def test_a_hook_sees_and_changes_the_same_steps(networks, beams):
    draw_weights(networks, (3, 0.6, -1.0))
    sources = [[5, 9, 3, 14, 0], [7, 0], [2, 2, 11, 20, 19, 8, 0]]
    ids, mask = pad(sources, 0, CPU)
    outputs, seen = [], []
    for network in networks:
        steps: list[Step] = []

        def change(step, steps=steps):
            steps.append(step)
            pull = torch.zeros_like(step.log_probs)
            pull[torch.arange(len(pull)), 2 + (step.prefixes.sum(1) + step.sentences) % 7] = 3.0
            return torch.log_softmax(step.log_probs + pull, dim=1)

        hook = KeyHook(network, network.get_decoder(), "ffn_in")
        with decoding_hook(network, hook, change, len(sources)):
            outputs.append(
                network.generate(ids, attention_mask=mask, num_beams=beams, max_new_tokens=10, early_stopping=False)
            )
        seen.append(steps)
    assert torch.equal(*outputs)
    assert not torch.equal(outputs[0], networks[0].generate(ids, mask, num_beams=beams, max_new_tokens=10))
    assert len(seen[0]) == len(seen[1]) > 2
    for ours, theirs in zip(*seen, strict=True):
        assert torch.equal(ours.queries, theirs.queries)
        assert torch.equal(ours.prefixes, theirs.prefixes)
        assert torch.equal(ours.sentences, theirs.sentences)


def test_an_argument_that_asks_for_more_is_refused(networks):
    with pytest.raises(TypeError, match="no argument 'repetition_penalty'"):
        networks[0].generate(torch.tensor([[4, 0]]), max_new_tokens=3, repetition_penalty=1.3)


def test_sizes_become_a_configuration(networks):
    config = networks[1].config
    assert not isinstance(config, MarianConfig)
    assert (config.d_model, config.vocab_size, config.pad_token_id, config.decoder_start_token_id) == (16, 23, 0, 0)
    fresh = FirefoxForTranslation(config)
    assert 0.001 < float(fresh.shared.weight.detach().std()) < 0.1, "a new network is drawn at random"
    assert fresh.lm_head.weight is fresh.shared.weight is fresh.encoder.embed_tokens.weight
