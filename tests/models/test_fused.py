"""The lean encoder and decoder against the network's own forward pass, whatever enters, leaves and is reordered."""

from __future__ import annotations

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import END, SEQ2SEQ, SIZES, NumberTokenizer, make_model

from knn_seq.models import TokenPair
from knn_seq.models.batching import pad
from knn_seq.models.encoder_decoder import EncoderDecoderModel
from knn_seq.models.fused import FusedDecoder, fused_encoder
from knn_seq.models.search.network_decoder import NetworkDecoder
from knn_seq.settings import DecodingSettings, ModelSettings

KINDS = ("marian", "bart", "mbart", "m2m100", "pegasus")
MODELS: dict[tuple[str, str], EncoderDecoderModel] = {}


def model_of(kind, key="ffn_in"):
    if (kind, key) not in MODELS:
        MODELS[kind, key] = pegasus(key) if kind == "pegasus" else make_model(kind, key=key)
    return MODELS[kind, key]


def pegasus(key):
    torch.manual_seed(0)
    network = transformers.PegasusForConditionalGeneration(
        transformers.PegasusConfig(**SIZES, **SEQ2SEQ, forced_eos_token_id=None, scale_embedding=True)
    ).eval()
    with torch.no_grad():
        network.final_logits_bias.normal_()
        for weight in network.parameters():
            weight.normal_(0, 0.3)
    return EncoderDecoderModel(network, NumberTokenizer(), "", ModelSettings("", key=key, device="cpu"), [END])


def expected(model, source, prefix):
    """The key and log p after a prefix, with no cache and no batch."""
    keys, log_probs = model.score([TokenPair(source, [*prefix, END])])
    return keys[-1], log_probs[-1]


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    sources=st.lists(st.lists(st.integers(4, 60), min_size=1, max_size=9), min_size=1, max_size=6),
)
def test_the_encoder_s_states_are_those_of_the_network(kind, sources):
    model = model_of(kind)
    tokens, mask = pad(sources, model.padding, model.device)
    with torch.no_grad():
        wanted = model.network.get_encoder()(input_ids=tokens, attention_mask=mask, return_dict=True)[0]
    states, own_mask = model.decoding_state(sources)
    assert torch.equal(own_mask, mask)
    assert (states[mask == 0] == 0).all()
    torch.testing.assert_close(states, wanted * mask.unsqueeze(2), atol=1e-5, rtol=1e-5)


def test_sources_that_the_encoder_has_no_positions_for_are_left_to_the_network():
    model = model_of("m2m100")
    longer = [[5] * (model.network.config.max_position_embeddings + 1)]
    assert fused_encoder(model.network, "float32").reads([[5, END]])
    assert not fused_encoder(model.network, "float32").reads(longer)
    assert model.decoding_state(longer)[0].isfinite().all()


def test_on_other_devices_and_in_float16_the_network_s_own_encoder_reads():
    network = model_of("marian").network
    assert fused_encoder(network, "float16") is None
    assert fused_encoder(make_model("marian").network.to("meta"), "float32") is None
    assert fused_encoder(make_model("t5").network, "float32") is None


@settings(max_examples=30, deadline=None)
@given(kind=st.sampled_from(KINDS), rows=st.integers(1, 4), key=st.sampled_from(["ffn_in", "ffn_out"]), data=st.data())
def test_every_step_is_that_of_the_network(kind, rows, key, data):
    model = model_of(kind, key)
    decoder = model.row_decoder(rows)
    assert isinstance(decoder, FusedDecoder)
    token = st.integers(4, 60)
    sources: list[list[int]] = []
    prefixes: list[list[list[int]]] = []  # of each sentence, of each row
    for _ in range(data.draw(st.integers(1, 6))):
        if not sources or data.draw(st.booleans()):
            new = data.draw(st.lists(st.lists(token, max_size=7).map(lambda s: [*s, END]), min_size=1, max_size=3))
            decoder.enter(new)
            sources += new
            prefixes += [[[] for _ in range(rows)] for _ in new]
        last = [prefix[-1] if prefix else model.prefix[-1] for each in prefixes for prefix in each]
        with torch.no_grad():
            logits, queries, *_ = decoder.step(torch.tensor(last))
        place = 0
        for source, each in zip(sources, prefixes, strict=True):
            for prefix in each:
                wanted_query, wanted = expected(model, source, prefix)
                torch.testing.assert_close(queries[place], wanted_query, atol=1e-5, rtol=1e-5)
                torch.testing.assert_close(logits[place].log_softmax(0), wanted, atol=1e-5, rtol=1e-5)
                place += 1
        parents = [data.draw(st.integers(0, rows - 1)) for _ in range(rows * len(sources))]
        prefixes = [
            [[*each[parents[s * rows + row]], data.draw(token)] for row in range(rows)]
            for s, each in enumerate(prefixes)
        ]
        decoder.follow(torch.tensor([row // rows * rows + parent for row, parent in enumerate(parents)]))
        kept = data.draw(st.permutations(range(len(sources))))[data.draw(st.integers(0, len(sources) - 1)) :]
        decoder.keep(kept)
        sources, prefixes = [sources[s] for s in kept], [prefixes[s] for s in kept]


def test_more_steps_than_there_is_place_for_at_first():
    model = model_of("marian")
    decoding = DecodingSettings(beam_size=3, max_length=90)
    model.end_tokens, ours = set(), model.generate([[5, 6, END], [7, END]], decoding)
    theirs = [model._generate([source], decoding, None)[0] for source in ([5, 6, END], [7, END])]
    assert max(len(best.tokens) for (best,) in ours) > 40
    assert [best.tokens for (best,) in ours] == [best.tokens for (best,) in theirs]


@pytest.mark.parametrize("kind", ["t5", "fsmt"])
def test_other_networks_run_as_they_are(kind):
    assert isinstance(make_model(kind).row_decoder(2), NetworkDecoder)


def test_a_key_inside_of_the_network_is_taken_there():
    assert isinstance(make_model("marian", key="model.decoder.layers.0.fc2:output").row_decoder(1), NetworkDecoder)


def test_the_networks_own_weights_stay_what_they_are_and_in_use():
    model = make_model("marian")
    before = {name: weight.clone() for name, weight in model.network.state_dict().items()}
    model.row_decoder(1)
    after = model.network.state_dict()
    assert all(torch.equal(weight, after[name]) for name, weight in before.items())
    settings = DecodingSettings(beam_size=1, max_length=6)
    first = model.generate([[5, 6, 7, END]], settings)
    with torch.no_grad():
        model.network.model.decoder.layers[0].self_attn.q_proj.weight.neg_()
        model.network.model.decoder.layers[0].self_attn.v_proj.weight.neg_()
    second = model.generate([[5, 6, 7, END]], settings)
    assert second != first
    assert second[0][0].tokens == model._generate([[5, 6, 7, END]], settings, None)[0][0].tokens


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision(dtype):
    model, wanted = make_model("m2m100", dtype=dtype), make_model("m2m100")
    decoders = model.row_decoder(2), wanted.row_decoder(2)
    for decoder in decoders:
        decoder.enter([[5, 6, END], [9, END]])
    for tokens in ([7, 7, 7, 7], [8, 9, 10, 11]):
        low, high = (decoder.step(torch.tensor(tokens)) for decoder in decoders)
        assert low.queries.dtype == getattr(torch, dtype)
        torch.testing.assert_close(low.logits.float(), high.logits, atol=0.3, rtol=0.1)
