"""Networks made from checkpoints of every variant, against the slow obvious forward pass."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from fairseq_files import EOS, OPTIONS, Reference, make_weights, write_checkpoint
from transformers import FSMTForConditionalGeneration

from knn_seq.errors import KnnSeqError
from knn_seq.fairseq.checkpoint import FairseqForTranslation
from knn_seq.models import TokenPair, load_model
from knn_seq.models.ensemble import Follower
from knn_seq.settings import DecodingSettings, ModelSettings

PRE = {"encoder_normalize_before": True, "decoder_normalize_before": True}
LEARNED = {"encoder_learned_pos": True, "decoder_learned_pos": True}
SHARED = {"share_all_embeddings": True}
VARIANTS = {
    "base": {},
    "gelu": {"activation_fn": "gelu"},
    "unscaled": {"no_scale_embedding": True},
    "shared": SHARED,
    "shared_decoder": {"share_decoder_input_output_embed": True},
    "pre": PRE,
    "pre_shared": PRE | SHARED,
    "pre_shared_decoder_gelu": PRE | {"share_decoder_input_output_embed": True, "activation_fn": "gelu"},
    "pre_encoder_only": {"encoder_normalize_before": True},
    "pre_decoder_only": {"decoder_normalize_before": True},
    "pre_no_final_norm": PRE | {"no_decoder_final_norm": True},
    "learned": LEARNED,
    "learned_shared": LEARNED | SHARED,
    "learned_pre": LEARNED | PRE,
    "learned_encoder_only": {"encoder_learned_pos": True},
    "no_positions": {"no_token_positional_embeddings": True},
    "embedding_norm": {"layernorm_embedding": True},
    "bart": LEARNED | SHARED | {"layernorm_embedding": True, "activation_fn": "gelu", "no_scale_embedding": True},
    "two_widths": {"encoder_embed_dim": 24},
    "t2t": {**SHARED, **PRE, "arch": "transformer_wmt_en_de_big_t2t"},
}
FSMT = {"base", "gelu", "unscaled", "shared", "shared_decoder"}
SOURCES = [[5, 9, 30, 14, EOS], [7, EOS], [20, 21, 11, 20, 19, 8, EOS]]
TARGETS = [[4, 4, 17, EOS], [40, 33, 12, 9, 9, 6, EOS], [EOS]]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """The model and the reference of a variant."""
    made = {}

    def load(variant):
        if variant not in made:
            options = OPTIONS | VARIANTS[variant]
            weights = make_weights(options)
            path = write_checkpoint(tmp_path_factory.mktemp(variant), VARIANTS[variant], weights)
            made[variant] = load_model(ModelSettings(f"fairseq:{path}", device="cpu")), Reference(weights, options)
        return made[variant]

    return load


@pytest.mark.parametrize("variant", VARIANTS)
def test_log_probabilities_and_keys(variant, loaded):
    model, reference = loaded(variant)
    assert isinstance(model.network, FSMTForConditionalGeneration if variant in FSMT else FairseqForTranslation)
    pairs = [TokenPair(source, target) for source, target in zip(SOURCES, TARGETS, strict=True)]
    keys, log_probs = model.score(pairs)
    wanted_keys, wanted = [], []
    for source, target in pairs:
        inputs = [EOS, *target[:-1]]
        wanted_keys.append(reference.keys(source, inputs))
        wanted.append(reference.log_probs(source, inputs))
    torch.testing.assert_close(log_probs.double(), torch.cat(wanted), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(keys.double(), torch.cat(wanted_keys), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(model.keys(pairs), keys, atol=1e-5, rtol=1e-5)
    assert model.dimension == reference.options["decoder_embed_dim"]
    assert torch.cat(wanted).std() > 0.5  # the distribution depends on what is read


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_of_the_network(variant, loaded):
    model, reference = loaded(variant)
    source, inputs = SOURCES[2], [EOS, 9, 38, 5]
    with torch.no_grad():
        logits = model.network(
            input_ids=torch.tensor([source]),
            attention_mask=torch.ones(1, len(source), dtype=torch.int64),
            decoder_input_ids=torch.tensor([inputs]),
            use_cache=False,
        ).logits[0]
    wanted = reference.log_probs(source, inputs)
    torch.testing.assert_close(torch.log_softmax(logits.double(), dim=-1), wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_greedy_generation(variant, loaded):
    model, reference = loaded(variant)
    outputs = model.generate(SOURCES, DecodingSettings(beam_size=1, max_length=12))
    for source, (output,) in zip(SOURCES, outputs, strict=True):
        assert output.tokens == reference.greedy(source, [EOS], 12)


@pytest.mark.parametrize("variant", ["base", "pre_shared", "bart"])
def test_beam_search_scores_what_the_reference_scores(variant, loaded):
    """At every step of the real search, each beam's distribution is the reference's."""
    model, reference = loaded(variant)
    seen = []

    def record(step):
        seen.append((step.sentences.tolist(), step.prefixes.tolist(), step.log_probs.clone(), step.queries.clone()))
        return step.log_probs

    model.generate(SOURCES, DecodingSettings(beam_size=4, max_length=7), record)
    rows = 0
    for sentences, prefixes, log_probs, queries in seen[:4]:
        for sentence, prefix, got, query in zip(sentences, prefixes, log_probs, queries, strict=True):
            if EOS not in prefix:
                inputs = [EOS, *prefix]
                wanted = reference.log_probs(SOURCES[sentence], inputs)[-1]
                np.testing.assert_allclose(got.double(), wanted, atol=2e-5)
                np.testing.assert_allclose(query.double(), reference.keys(SOURCES[sentence], inputs)[-1], atol=2e-5)
                rows += 1
    assert rows > 20


@pytest.mark.parametrize("variant", ["pre_shared", "learned", "two_widths"])
def test_a_prefix_of_several_tokens_and_a_cache_that_is_reordered(variant, loaded):
    model, reference = loaded(variant)
    follower = Follower(model, SOURCES)
    state, rows = follower.inputs, torch.tensor([2, 0, 0])
    prefixes = torch.tensor([[9, 38], [5, 6], [7, 8]])
    logits, cache = model.next_logits(state, prefixes, None)
    cache.reorder_cache(rows)
    longer = torch.cat([prefixes[rows], torch.tensor([[4], [11], [12]])], dim=1)
    logits, _ = model.next_logits(tuple(part[rows] for part in state), longer[:, -1:], cache)
    for row, sentence in enumerate(rows.tolist()):
        wanted = reference.log_probs(SOURCES[sentence], [EOS, *longer[row].tolist()])[-1]
        torch.testing.assert_close(torch.log_softmax(logits[row].double(), -1), wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("variant", ["base", "pre"])
def test_padding_is_never_generated_and_no_output_is_empty(variant, tmp_path):
    weights = make_weights(OPTIONS | VARIANTS[variant])
    last = "decoder.layer_norm" if variant == "pre" else "decoder.layers.2.final_layer_norm"
    weights[f"{last}.weight"].zero_()
    weights[f"{last}.bias"].fill_(1.0)  # whatever is read, the last state is all ones
    projection = torch.zeros_like(weights["decoder.output_projection.weight"])
    projection[1], projection[EOS], projection[7] = 3.0, 2.0, 1.0  # padding is the most probable, then the end
    path = write_checkpoint(tmp_path, VARIANTS[variant], weights | {"decoder.output_projection.weight": projection})
    model = load_model(ModelSettings(f"fairseq:{path}", device="cpu"))
    outputs = model.generate(SOURCES, DecodingSettings(beam_size=1, max_length=5))
    assert [best.tokens for (best,) in outputs] == [[7, EOS]] * 3


@pytest.mark.parametrize("variant", ["base", "pre"])
def test_keys_of_a_batch_that_the_encoder_has_read_already(variant, loaded):
    model, _ = loaded(variant)
    pairs = [TokenPair(source, target) for source, target in zip(SOURCES, TARGETS, strict=True)]
    wanted = model.keys(pairs)
    model.sentence_vectors(SOURCES)
    torch.testing.assert_close(model.keys(pairs), wanted)


def test_a_search_ends_when_there_are_as_many_outputs_as_beams(loaded):
    """As in fairseq, and unlike the default of Transformers, which continues while a better output is possible."""
    model, _ = loaded("base")
    steps = []

    def prefer_the_end(step):
        steps.append(step.prefixes.shape[1])
        step.log_probs[:] = -9.0
        step.log_probs[:, EOS] = -0.9 if len(steps) > 1 else -9.0
        step.log_probs[:, 7] = -0.1
        return step.log_probs

    ((output,),) = model.generate([SOURCES[0]], DecodingSettings(beam_size=2, max_length=20), prefer_the_end)
    assert steps == [0, 1, 2]
    assert output.tokens == [7, 7, EOS]


def test_old_names_of_weights(tmp_path, loaded):
    """Checkpoints of the first years: one matrix for queries, keys and values, and numbered norms."""
    options = OPTIONS | {"share_all_embeddings": False}
    weights = make_weights(options)
    old = {}
    for name, tensor in weights.items():
        if ".k_proj." in name:
            parts = [weights[name.replace("k_proj", f"{part}_proj")] for part in "qkv"]
            old[name.replace("k_proj.", "in_proj_")] = torch.cat(parts)
        elif ".q_proj." not in name and ".v_proj." not in name:
            for side, norms in (
                ("encoder", ["self_attn", "final"]),
                ("decoder", ["self_attn", "encoder_attn", "final"]),
            ):
                for number, norm in enumerate(norms):
                    if name.startswith(side):
                        name = name.replace(f".{norm}_layer_norm.", f".layer_norms.{number}.")
            old["decoder.embed_out" if name == "decoder.output_projection.weight" else name] = tensor
    old.pop("encoder.version")
    assert not any("self_attn_layer_norm" in name for name in old)
    path = write_checkpoint(tmp_path, {}, old, style="args")
    model = load_model(ModelSettings(f"fairseq:{path}", device="cpu"))
    assert model.fingerprint == loaded("base")[0].fingerprint


@pytest.mark.parametrize("version", [1.0, 2.0, None])
def test_old_versions_have_no_norm_behind_the_last_layer(version, tmp_path):
    """fairseq does not use those norms below version 2 of the encoder's format, and 3 of the decoder's."""
    weights = make_weights(OPTIONS | PRE)
    unused = ["decoder.layer_norm.weight", "decoder.layer_norm.bias"]
    if version != 2.0:
        unused += ["encoder.layer_norm.weight", "encoder.layer_norm.bias"]
    for side in ("encoder", "decoder"):
        weights[f"{side}.version"] = torch.tensor([version or 1.0])
        if version is None:
            del weights[f"{side}.version"]
    model = load_model(ModelSettings(f"fairseq:{write_checkpoint(tmp_path, PRE, weights)}", device="cpu"))
    reference = Reference({name: tensor for name, tensor in weights.items() if name not in unused}, OPTIONS | PRE)
    keys, log_probs = model.score([TokenPair(SOURCES[0], TARGETS[0])])
    inputs = [EOS, *TARGETS[0][:-1]]
    wanted = reference.log_probs(SOURCES[0], inputs)
    torch.testing.assert_close(log_probs.double(), wanted, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(keys.double(), reference.keys(SOURCES[0], inputs), atol=1e-5, rtol=1e-5)


def test_weights_in_half_precision_are_read(tmp_path):
    weights = {name: tensor.half() for name, tensor in make_weights(OPTIONS).items()}
    path = write_checkpoint(tmp_path, {}, weights)
    model = load_model(ModelSettings(f"fairseq:{path}", device="cpu"))
    reference = Reference({name: tensor.float() for name, tensor in weights.items()})
    _, log_probs = model.score([TokenPair(SOURCES[0], TARGETS[0])])
    wanted = reference.log_probs(SOURCES[0], [EOS, *TARGETS[0][:-1]])
    torch.testing.assert_close(log_probs.double(), wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("variant", ["base", "pre", "learned"])
def test_half_precision_computes(variant, tmp_path):
    path = write_checkpoint(tmp_path, VARIANTS[variant])
    settings = ModelSettings(f"fairseq:{path}", device="cpu", dtype="bfloat16")
    exact = load_model(ModelSettings(f"fairseq:{path}", device="cpu"))
    pairs = [TokenPair(SOURCES[0], TARGETS[0])]
    keys, wanted = load_model(settings).keys(pairs), exact.keys(pairs)
    assert keys.dtype == torch.bfloat16
    assert (keys.float() - wanted).abs().mean() < 0.05 * wanted.abs().mean()


@pytest.mark.parametrize("variant", ["learned", "pre", "base"])
def test_positions_limit_the_length(variant, loaded):
    model, reference = loaded(variant)
    assert model.max_length == 49  # the decoder's 50, of which the first token takes one
    source = [5] * 48 + [EOS]
    target = [6] * 48 + [EOS]
    _, log_probs = model.score([TokenPair(source, target)])
    wanted = reference.log_probs(source, [EOS, *target[:-1]])
    torch.testing.assert_close(log_probs.double(), wanted, atol=2e-5, rtol=2e-5)


def test_tensors_that_are_too_many_or_missing_are_named(tmp_path):
    weights = make_weights(OPTIONS)
    cases = {
        "decoder.project_in_dim.weight": weights | {"decoder.project_in_dim.weight": torch.zeros(2, 2)},
        "encoder.layers.1.fc1.bias": {k: v for k, v in weights.items() if k != "encoder.layers.1.fc1.bias"},
        "decoder.layers.2.fc2.weight": weights | {"decoder.layers.2.fc2.weight": torch.zeros(2, 2)},
        "encoder.embed_tokens.weight": {k: v for k, v in weights.items() if k != "encoder.embed_tokens.weight"},
    }
    for number, (name, case) in enumerate(cases.items()):
        path = write_checkpoint(tmp_path / str(number), {}, case)
        with pytest.raises(KnnSeqError, match=f"model.pt is of a variant that is not supported.*'{name}'"):
            load_model(ModelSettings(f"fairseq:{path}"))
