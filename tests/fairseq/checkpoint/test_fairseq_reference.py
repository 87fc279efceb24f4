"""The reader of fairseq's checkpoints against numbers that real fairseq computed (tests/fairseq/make_reference.py)."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch
from seeded_weights import seeded_weights

from knn_seq.models import load_model
from knn_seq.models.base import TokenPair
from knn_seq.settings import ModelSettings

FOLDER = Path(__file__).parent.parent
REFERENCE = json.loads((FOLDER / "reference.json").read_text())


@pytest.fixture(params=REFERENCE["models"])
def reference(request):
    return REFERENCE["models"][request.param]


@pytest.fixture(params=["args", "cfg"])
def model(request, reference, tmp_path):
    """The model, from a checkpoint as older and as newer versions of fairseq write it."""
    weights = seeded_weights(reference["shapes"], reference["seed"], reference["tied"])
    weights |= {name: torch.tensor(value) for name, value in reference["marks"].items()}
    options = reference["options"] | {"source_lang": "xx", "target_lang": "yy"}
    if request.param == "args":
        options = {"args": Namespace(task="translation", **options)}
    else:
        task = {"_name": "translation", "source_lang": "xx", "target_lang": "yy"}
        options = {"args": None, "cfg": {"model": Namespace(_name="transformer", **options), "task": task}}
    torch.save(options | {"model": weights}, tmp_path / "model.pt")
    for side, symbols in zip(("xx", "yy"), reference["symbols"], strict=True):
        (tmp_path / f"dict.{side}.txt").write_text("".join(f"{symbol} 1\n" for symbol in symbols))
    return load_model(ModelSettings(f"fairseq:{tmp_path / 'model.pt'}"))


def test_keys_are_fairseqs(model, reference):
    pairs = [TokenPair(output["source"], output["target"]) for output in reference["outputs"]]
    expected = np.concatenate([output["keys"] for output in reference["outputs"]])
    np.testing.assert_allclose(model.keys(pairs).numpy(), expected, atol=1e-5)


def test_log_probabilities_are_fairseqs(model, reference):
    pairs = [TokenPair(output["source"], output["target"]) for output in reference["outputs"]]
    expected = np.concatenate([output["log_probs"] for output in reference["outputs"]])
    np.testing.assert_allclose(model.score(pairs).log_probs.numpy(), expected, atol=1e-5)
