"""Checkpoint files: every style, and what is refused."""

from __future__ import annotations

import io
import os
import pickle
import sys
import types
import zipfile
from argparse import Namespace
from collections import defaultdict
from enum import Enum

import pytest
import torch
from fairseq_files import OPTIONS, make_weights, write_checkpoint

from knn_seq.errors import KnnSeqError
from knn_seq.fairseq.checkpoint import read_checkpoint
from knn_seq.fairseq.checkpoint.options import architecture_of
from knn_seq.models import load_model
from knn_seq.settings import ModelSettings


@pytest.mark.parametrize("style", ["args", "cfg", "plain"])
def test_all_styles_say_the_same(style, tmp_path):
    path = write_checkpoint(tmp_path, {"arch": "transformer_iwslt_de_en"}, style=style)
    checkpoint = read_checkpoint(path)
    wanted = OPTIONS | {"arch": "transformer_iwslt_de_en"}
    assert {name: checkpoint.options.get(name) for name in wanted} == wanted
    assert set(checkpoint.weights) == set(make_weights(OPTIONS))
    assert all(tensor.dtype == torch.float32 for tensor in checkpoint.weights.values())


def test_the_files_of_old_versions_of_torch(tmp_path):
    path = write_checkpoint(tmp_path, style="args")
    wanted = read_checkpoint(path)
    torch.save(torch.load(path, weights_only=False), path, _use_new_zipfile_serialization=False)
    assert not zipfile.is_zipfile(path)
    got = read_checkpoint(path)
    assert got.options == wanted.options
    assert all(torch.equal(got.weights[name], wanted.weights[name]) for name in wanted.weights)


def test_weights_stay_when_the_file_goes(tmp_path):
    path = write_checkpoint(tmp_path)
    checkpoint = read_checkpoint(path)
    wanted = make_weights(OPTIONS)
    path.write_bytes(b"")
    assert all(torch.equal(checkpoint.weights[name], wanted[name]) for name in wanted)


@pytest.fixture
def other_library():
    """Classes that can be pickled at first, and are gone once `remove` was called."""
    patch, made = pytest.MonkeyPatch(), set()

    def make(module, *names):
        parts = module.split(".")
        for end in range(1, len(parts) + 1):
            name = ".".join(parts[:end])
            if name not in made:  # the real library, if it is there, stays as it is
                patch.setitem(sys.modules, name, types.ModuleType(name))
                made.add(name)
        classes = [type(name, (), {"__module__": module}) for name in names]
        for cls in classes:
            setattr(sys.modules[module], cls.__name__, cls)
        return classes

    yield make, patch.undo
    patch.undo()


@pytest.mark.parametrize("by_name", [False, True])
def test_configurations_of_omegaconf_without_omegaconf(tmp_path, other_library, by_name):
    make, remove = other_library
    (config,) = make("omegaconf.dictconfig", "DictConfig")
    (sequence,) = make("omegaconf.listconfig", "ListConfig")
    node, metadata = make("omegaconf.nodes", "AnyNode", "Metadata")
    (dataclass,) = make("fairseq.dataclass.configs", "FairseqConfig")
    make("fairseq.dataclass.constants")
    choice = Enum("choice", {"relu": "relu"}, module="fairseq.dataclass.constants", qualname="choice")
    sys.modules["fairseq.dataclass.constants"].choice = choice
    # Pythons differ in how they write a member of an enumeration.
    by_value = lambda self, protocol: (type(self), (self.value,))  # noqa: E731
    choice.__reduce_ex__ = (lambda self, protocol: (getattr, (type(self), self.name))) if by_name else by_value

    def wrap(value, parent):
        new = None
        if isinstance(value, dict):
            new = config()
            new._content = {key: wrap(entry, new) for key, entry in value.items()}
        elif isinstance(value, list):
            new = sequence()
            new._content = [wrap(entry, new) for entry in value]
        else:
            new = node()
            new._val = value
        new._parent = parent
        new._metadata = metadata()
        cache = defaultdict(dict, {"resolver": {"key": 1}})
        new._metadata.__dict__ = {"object_type": dataclass, "element_type": int, "resolver_cache": cache}
        return new

    path = write_checkpoint(tmp_path, {"langs": ["de", "fr"]}, style="plain")
    state = torch.load(path, weights_only=False)
    state["cfg"]["model"]["activation_fn"] = choice.relu
    state["cfg"] = wrap(state["cfg"], None)
    torch.save(state, path)
    remove()
    checkpoint = read_checkpoint(path)
    wanted = OPTIONS | {"langs": ["de", "fr"]}
    assert {name: checkpoint.options.get(name) for name in wanted} == wanted


def test_nested_options_of_the_newest_configurations(tmp_path):
    path = write_checkpoint(tmp_path, style="plain")
    state = torch.load(path, weights_only=False)
    model = state["cfg"]["model"]
    for side in ("encoder", "decoder"):
        names = [name for name in model if name.startswith(f"{side}_")]
        model[side] = {name.removeprefix(f"{side}_"): model.pop(name) for name in names}
    state["cfg"]["bpe"] = {"_name": "sentencepiece", "sentencepiece_model": "/x/spm.model"}
    state["cfg"]["tokenizer"] = Namespace(_name="moses", source_lang="en", moses_no_escape=True)
    torch.save(state, path)
    options = read_checkpoint(path).options
    assert architecture_of(options, path) == architecture_of(OPTIONS, path)
    assert (options["bpe"], options["sentencepiece_model"]) == ("sentencepiece", "/x/spm.model")
    assert (options["tokenizer"], options["moses_no_escape"], options["source_lang"]) == ("moses", True, "xx")


def test_meters_and_numpy_numbers_are_passed_over(tmp_path, other_library):
    import numpy as np

    make, remove = other_library
    (meter,) = make("fairseq.meters", "AverageMeter")
    extra = {"extra_state": {"best": np.float64(3.5), "meters": {"loss": meter()}, "array": np.arange(3)}}
    path = write_checkpoint(tmp_path, extra=extra)
    remove()
    assert read_checkpoint(path).options["arch"] == "transformer"


class Malicious:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("place", ["args", "model", "beside"])
@pytest.mark.parametrize("function", [os.system, exec, os.mkdir])
def test_nothing_of_the_file_is_run(function, place, zipped, tmp_path):
    path = write_checkpoint(tmp_path, style="args")
    marker = tmp_path / "was-run"
    text = {os.system: f"touch {marker}", exec: f"open({str(marker)!r}, 'w')", os.mkdir: str(marker)}[function]
    state = torch.load(path, weights_only=False)
    if place == "args":
        state["args"].bpe = Malicious(function, text)
    elif place == "model":
        state["model"]["encoder.version"] = Malicious(function, text)
    else:
        state["extra_state"] = Malicious(function, text)
    torch.save(state, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(KnnSeqError, match=r"model\.pt asks for '[\w.]*(system|exec|mkdir)'.*nothing of it was run"):
        read_checkpoint(path)
    assert not marker.exists()
    torch.load(path, weights_only=False)  # the file was indeed harmful
    assert marker.exists()


def test_stand_ins_do_nothing_even_under_the_name_of_a_function(tmp_path):
    """A file may name a real function of a library whose configurations are allowed."""
    import numpy as np

    path = write_checkpoint(tmp_path, style="args")
    marker = tmp_path / "was-written"
    state = torch.load(path, weights_only=False)
    state["extra_state"] = Malicious(np.save, str(marker), np.zeros(1))
    torch.save(state, path)
    read_checkpoint(path)
    assert not list(tmp_path.glob("was-written*"))


class Allowed:
    pass


def test_what_others_allow_stays_allowed_and_is_not_used(tmp_path):
    path = write_checkpoint(tmp_path, extra={"extra_state": Allowed()})
    fine = write_checkpoint(tmp_path / "fine")
    with torch.serialization.safe_globals([Allowed]):
        torch.load(fine, weights_only=False)
        before = set(torch.serialization.get_safe_globals())
        read_checkpoint(fine)
        with pytest.raises(KnnSeqError, match=r"asks for '[\w.]*Allowed'"):
            read_checkpoint(path)
        assert before <= set(torch.serialization.get_safe_globals())
    assert Allowed not in torch.serialization.get_safe_globals()


def test_files_that_are_no_checkpoints(tmp_path):
    path = write_checkpoint(tmp_path)
    content_of_file = path.read_bytes()
    buffer = io.BytesIO()
    torch.save([1, 2], buffer)
    for number, content in enumerate(
        (b"", b"hello", content_of_file[: len(content_of_file) // 2], pickle.dumps({}), buffer.getvalue())
    ):
        broken = tmp_path / f"{number}.pt"
        broken.write_bytes(content)
        with pytest.raises(KnnSeqError, match=f"{number}.pt"):
            read_checkpoint(broken)
    with pytest.raises(KnnSeqError, match="There is no checkpoint"):
        read_checkpoint(tmp_path / "none.pt")
    (tmp_path / "empty").mkdir()
    with pytest.raises(KnnSeqError, match=r"neither model\.pt nor checkpoint_best\.pt"):
        load_model(ModelSettings(f"fairseq:{tmp_path / 'empty'}"))


def test_a_checkpoint_without_options(tmp_path):
    path = write_checkpoint(tmp_path, style="args")
    state = torch.load(path, weights_only=False)
    del state["args"]
    torch.save(state, path)
    with pytest.raises(KnnSeqError, match="neither 'args' nor 'cfg'"):
        read_checkpoint(path)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("adaptive_softmax_cutoff", "1000,2000"),
        ("adaptive_input", True),
        ("cross_self_attention", True),
        ("no_cross_attention", True),
        ("layer_wise_attention", True),
        ("quant_noise_pq", 0.1),
        ("activation_fn", "swish"),
        ("char_inputs", True),
        ("base_layers", 2),
        ("merge_src_tgt_embed", True),
        ("encoder_attention_heads", 0),
        ("arch", "lightconv_wmt_en_de"),
        ("arch", "transformer_lm_big"),
        ("arch", "fconv"),
        ("task", "multilingual_translation"),
    ],
)
def test_unsupported_options_are_named(option, value, tmp_path):
    path = write_checkpoint(tmp_path, weights=make_weights(OPTIONS), options={option: value})
    with pytest.raises(
        KnnSeqError, match=rf"'{option}' \({value}\)" if option not in ("arch", "task") else f"'{value}'"
    ):
        load_model(ModelSettings(f"fairseq:{path}"))


def test_named_architectures_where_a_checkpoint_does_not_store_all(tmp_path):
    t2t = architecture_of({"arch": "transformer_wmt_en_de_big_t2t"}, tmp_path)
    assert (t2t.encoder_heads, t2t.decoder_heads) == (16, 16)
    assert t2t.encoder_normalize_before
    assert t2t.decoder_normalize_before
    iwslt = architecture_of({"arch": "transformer_iwslt_de_en", "decoder_attention_heads": 8}, tmp_path)
    assert (iwslt.encoder_heads, iwslt.decoder_heads, iwslt.encoder_normalize_before) == (4, 8, False)
    base = architecture_of({"arch": "transformer_wmt_en_de"}, tmp_path)
    assert (base.encoder_heads, base.max_source_positions, base.scale_embedding, base.activation) == (
        8,
        1024,
        True,
        "relu",
    )
