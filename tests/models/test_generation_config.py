"""A GenerationConfig of Transformers in the place of DecodingSettings."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from tiny_models import END, make_model, number_store_of
from transformers import GenerationConfig

from knn_seq.errors import InvalidSetting
from knn_seq.models import load_model
from knn_seq.settings import DecodingSettings, ModelSettings
from knn_seq.translator import Translator

SOURCES = [[9, 10, 11, 12, END], [13, 14, END], [20, END]]
KINDS = ["marian", "mbart", "gpt2"]
SAME = [
    (DecodingSettings(beam_size=1, max_length=7), GenerationConfig(max_new_tokens=7)),
    (
        DecodingSettings(beam_size=3, nbest=2, length_penalty=0.3, max_length=9),
        GenerationConfig(num_beams=3, num_return_sequences=2, length_penalty=0.3, max_new_tokens=9),
    ),
    (
        DecodingSettings(sample=True, seed=0, nbest=2, top_k=9, top_p=0.9, sampling_temperature=1.3, max_length=6),
        GenerationConfig(do_sample=True, num_return_sequences=2, top_k=9, top_p=0.9, temperature=1.3, max_new_tokens=6),
    ),
]


@pytest.fixture(scope="module")
def firefox():
    return load_model(ModelSettings("firefox:pt-en", device="cpu"))


def repeated_pairs(tokens: list[int]) -> int:
    pairs = list(pairwise(tokens))
    return len(pairs) - len(set(pairs))


@pytest.mark.parametrize(("settings", "config"), SAME, ids=["greedy", "beam", "sampling"])
@pytest.mark.parametrize("kind", KINDS)
def test_it_says_the_same_as_settings(kind, settings, config):
    model = make_model(kind)
    sources = SOURCES[:1] if settings.sample else SOURCES  # a seed is for each sentence, torch's numbers are for all
    expected = model.generate(sources, settings)
    torch.manual_seed(0)
    assert model.generate(sources, config) == expected


@pytest.mark.parametrize(("settings", "config"), SAME, ids=["greedy", "beam", "sampling"])
def test_it_says_the_same_to_a_firefox_model(settings, config, firefox):
    sources = firefox.tokenizer.encode_sources(["Deus viu a luz.", "A terra era boa."][: 1 if settings.sample else 2])
    expected = firefox.generate(sources, settings)
    torch.manual_seed(0)
    assert firefox.generate(sources, config) == expected


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_fields_that_settings_do_not_have(kind, beams, tmp_path):
    model = make_model(kind)
    translator = Translator(number_store_of(model, tmp_path), model, k=4, temperature=20.0, weight=0.3)
    sources = ["9 10 11 12", "13 14", "20"]
    free = GenerationConfig(num_beams=beams, max_new_tokens=40)
    bound = GenerationConfig(num_beams=beams, max_new_tokens=40, no_repeat_ngram_size=2, min_new_tokens=30)
    assert any(repeated_pairs(each.tokens) for each in translator.translate(sources, decoding=free))
    found = translator.translate(sources, decoding=bound)
    assert found == Translator(translator.store, model, decoding=bound, k=4, temperature=20.0, weight=0.3).translate(
        sources
    )
    for translation in found:
        assert len(translation.tokens) >= 30
        assert not repeated_pairs(translation.tokens)


@pytest.mark.parametrize("kind", KINDS)
def test_lengths(kind):
    model = make_model(kind)
    forced = len(model.forced_tokens(SOURCES[0]))
    lengths = {4 + forced - len(model.forced_tokens(source)) for source in SOURCES}
    never = GenerationConfig(eos_token_id=model.network.config.pad_token_id, suppress_tokens=[1], max_length=forced + 4)
    assert {len(best.tokens) for (best,) in model.generate(SOURCES, never)} == lengths
    with pytest.raises(InvalidSetting, match="leaves no token to generate"):
        model.generate(SOURCES, GenerationConfig(max_length=forced))
    never.max_length = None
    assert {len(best.tokens) for (best,) in model.generate(SOURCES, never)} == {min(256, model.max_length)}


def test_the_models_own_defaults_hold_where_it_says_nothing():
    model = make_model("marian")
    model.network.generation_config.num_beams = 3
    model.network.generation_config.num_return_sequences = 2
    model.network.generation_config.forced_bos_token_id = 50
    outputs = model.generate(SOURCES, GenerationConfig(max_new_tokens=5))
    assert outputs == model.generate(SOURCES, DecodingSettings(beam_size=3, nbest=2, max_length=5))
    assert {len(nbest) for nbest in outputs} == {2}


@pytest.mark.parametrize(
    "fields", [{"penalty_alpha": 0.6, "top_k": 4}, {"prompt_lookup_num_tokens": 3}, {"guidance_scale": 1.5}]
)
def test_searches_that_cannot_be_hooked_are_refused(fields):
    with pytest.raises(InvalidSetting, match=f"{next(iter(fields))}=.* cannot be used here"):
        make_model("marian").generate(SOURCES, GenerationConfig(**fields))


@pytest.mark.parametrize(
    "fields",
    [{"encoder_no_repeat_ngram_size": 2}, {"typical_p": 0.9}, {"renormalize_logits": True}, {"min_p": 0.1}],
)
def test_a_firefox_model_refuses_what_its_search_has_not(fields, firefox):
    with pytest.raises(InvalidSetting, match=f"has no {next(iter(fields))} "):
        firefox.generate([[5, 0]], GenerationConfig(num_beams=2, **fields))


def test_a_firefox_model_accepts_what_changes_nothing(firefox):
    neutral = {"repetition_penalty": 1.0, "early_stopping": False, "eos_token_id": 0, "pad_token_id": 0}
    config = GenerationConfig(num_beams=2, max_new_tokens=5, use_cache=True, no_repeat_ngram_size=0, **neutral)
    assert firefox.generate([[5, 0]], config) == firefox.generate([[5, 0]], DecodingSettings(beam_size=2, max_length=5))
    with pytest.raises(InvalidSetting, match="has no num_beams"):
        firefox.generate([[5, 0]], GenerationConfig(num_beams=2, do_sample=True))


def test_anything_else_is_refused():
    with pytest.raises(InvalidSetting, match="DecodingSettings or a GenerationConfig"):
        make_model("marian").generate(SOURCES, 5)
