"""Checkpoints as folders of Transformers."""

from __future__ import annotations

import pytest
import torch
from fairseq_files import EOS, OPTIONS, TARGET_WORDS, make_weights, write_checkpoint, write_dictionary
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, FSMTForConditionalGeneration

from knn_seq.cli.main import main
from knn_seq.fairseq import register_fairseq
from knn_seq.fairseq.checkpoint.network import fairseq_search
from knn_seq.models import TokenPair, load_model
from knn_seq.settings import DecodingSettings, ModelSettings

PRE = {"encoder_normalize_before": True, "decoder_normalize_before": True}
VARIANTS = {
    "fsmt": {},
    "fsmt_shared": {"share_all_embeddings": True},
    "fsmt_shared_decoder": {"share_decoder_input_output_embed": True},
    "own": PRE,
    "own_shared": {**PRE, "share_all_embeddings": True, "encoder_learned_pos": True},
    "own_shared_decoder": {**PRE, "share_decoder_input_output_embed": True, "layernorm_embedding": True},
}
PAIRS = [TokenPair([5, 9, 30, EOS], [4, 4, 17, EOS]), TokenPair([7, EOS], [40, 33, EOS])]


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_converted_model_is_the_same_model(variant, tmp_path, capsys):
    path = write_checkpoint(tmp_path / "checkpoint", VARIANTS[variant])
    out = tmp_path / "out"
    assert main(["convert", f"fairseq:{path}", str(out)]) == 0
    assert f"--model fairseq:{out}" in capsys.readouterr().out
    before, after = (load_model(ModelSettings(f"fairseq:{place}", device="cpu")) for place in (path, out))
    assert before.fingerprint == after.fingerprint
    assert before.architecture == after.architecture
    assert before.max_length == after.max_length
    for left, right in zip(before.score(PAIRS), after.score(PAIRS), strict=True):
        assert torch.equal(left, right)
    sources = before.tokenizer.encode_sources(["s1 s2 s3", "s5"])
    assert after.tokenizer.encode_sources(["s1 s2 s3", "s5"]) == sources
    for beams in (1, 4):
        decoding = DecodingSettings(beam_size=beams, max_length=9, nbest=beams)
        outputs = before.generate(sources, decoding)
        assert after.generate(sources, decoding) == outputs
        texts = [model.tokenizer.decode(outputs[0][0].tokens) for model in (before, after)]
        assert texts[0] == texts[1] != ""


def test_plain_transformers_loads_an_fsmt_with_its_tokenizer(tmp_path):
    words = ["low@@", "er", "est", "lo@@", "w", "w@@", "x", "l@@", "o", "."]
    weights = make_weights(OPTIONS | {"share_all_embeddings": True}, (14, 14))
    options = {"share_all_embeddings": True, "source_lang": "en", "target_lang": "en", "tokenizer": "moses"}
    path = write_checkpoint(tmp_path / "checkpoint", options, weights, style="args")
    write_dictionary(path.parent / "dict.en.txt", words)
    (path.parent / "bpecodes").write_text("l o 20\nlo w 15\ne r</w> 12\ne s 9\nes t</w> 9\n")
    assert main(["convert", f"fairseq:{path}", str(tmp_path / "out")]) == 0
    model = load_model(ModelSettings(f"fairseq:{path}", device="cpu"))
    network = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert isinstance(network, FSMTForConditionalGeneration)
    network.generation_config.forced_eos_token_id = None  # outputs are cut here
    text = "lower lowest low x."
    tokens = tokenizer(text)["input_ids"]
    assert tokens == model.tokenizer.encode_sources([text])[0] == [4, 5, 4, 6, 7, 8, 10, 13, EOS]
    assert tokenizer.decode(tokens, skip_special_tokens=True) == model.tokenizer.decode(tokens) == text
    generated = network.generate(torch.tensor([tokens]), num_beams=3, max_new_tokens=8, max_length=None)[0, 1:].tolist()
    (best,) = model.generate([tokens], DecodingSettings(beam_size=3, max_length=8))[0]
    assert generated[: len(best.tokens)] == best.tokens


@pytest.mark.parametrize(("variant", "scale"), [("fsmt", 4), ("own", -2)])
def test_plain_transformers_searches_as_fairseq_does(variant, scale, tmp_path):
    weights = make_weights(OPTIONS | VARIANTS[variant], seed=1)
    weights["decoder.output_projection.weight"][EOS] *= scale  # so that most outputs end
    path = write_checkpoint(tmp_path / "checkpoint", VARIANTS[variant], weights)
    assert main(["convert", f"fairseq:{path}", str(tmp_path / "out")]) == 0
    register_fairseq()
    network = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out").eval()
    model = load_model(ModelSettings(f"fairseq:{path}", device="cpu"))
    sources = [[number, 3 * number, 9, EOS] for number in range(4, 12)]
    ended = 0
    for source, [best] in zip(sources, model.generate(sources, DecodingSettings(max_length=40)), strict=True):
        found = network.generate(torch.tensor([source]))[0, 1:].tolist()
        assert found[-1] == EOS
        if best.tokens[-1] == EOS:  # else it was cut
            assert found == best.tokens
            ended += 1
    assert ended > 4


def test_the_written_search_is_fairseqs_default(tmp_path):
    config = fairseq_search(positions=1024)
    assert (config.num_beams, config.early_stopping, config.max_new_tokens) == (5, True, 201)
    assert fairseq_search(positions=50).max_new_tokens == 50


@pytest.mark.parametrize("variant", ["fsmt", "own"])
def test_a_converted_folder_needs_no_backend_name(variant, tmp_path):
    path = write_checkpoint(tmp_path / "checkpoint", VARIANTS[variant])
    assert main(["convert", f"fairseq:{path}", str(tmp_path / "out")]) == 0
    named, plain = (load_model(ModelSettings(f"{name}{tmp_path / 'out'}", device="cpu")) for name in ("fairseq:", ""))
    assert type(plain) is type(named)
    assert plain.fingerprint == named.fingerprint
    assert plain.tokenizer.encode_sources(["s1 s2"]) == [[5, 6, EOS]]


def test_a_converted_multilingual_model_keeps_all_its_languages(tmp_path):
    options = {
        **PRE,
        "task": "translation_multi_simple_epoch",
        "share_all_embeddings": True,
        "source_lang": None,
        "target_lang": None,
        "encoder_langtok": "src",
        "decoder_langtok": True,
        "langs": ["de", "en", "fr"],
    }
    rows = len(TARGET_WORDS) + 7
    path = write_checkpoint(tmp_path / "checkpoint", options, make_weights(OPTIONS | options, (rows, rows)))
    state = torch.load(path, weights_only=False)
    state["cfg"]["task"] |= {name: options[name] for name in ("encoder_langtok", "decoder_langtok", "langs")}
    torch.save(state, path)
    for language in options["langs"]:
        write_dictionary(path.parent / f"dict.{language}.txt", TARGET_WORDS)
    out = tmp_path / "out"
    assert main(["convert", f"fairseq:{path}", str(out), "--source-lang", "de", "--target-lang", "en"]) == 0
    for languages in ({"source_lang": "de", "target_lang": "en"}, {"source_lang": "en", "target_lang": "fr"}):
        before, after = (
            load_model(ModelSettings(f"fairseq:{place}", device="cpu", **languages)) for place in (path, out)
        )
        assert before.fingerprint == after.fingerprint
        assert before.prefix == after.prefix
        assert before.tokenizer.encode_sources(["t1"]) == after.tokenizer.encode_sources(["t1"])


def test_what_cannot_be_converted(tmp_path, capsys):
    path = write_checkpoint(tmp_path)
    assert main(["convert", "firefox:pt-en", str(tmp_path / "out")]) == 2
    assert "Only fairseq's models can be converted" in capsys.readouterr().err
    assert main(["convert", f"fairseq:{path}", str(tmp_path)]) == 2
    assert "is not empty: choose another folder" in capsys.readouterr().err
