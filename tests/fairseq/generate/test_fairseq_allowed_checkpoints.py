"""What the plug-in lets torch read, and what it does not."""

from __future__ import annotations

import os
import pickle
from argparse import Namespace

import numpy as np
import pytest
import torch

from knn_seq.fairseq.generate.checkpoints import allow_checkpoints


def test_the_plain_things_in_checkpoints_are_read(tmp_path):
    allow_checkpoints()
    state = {"args": Namespace(arch="transformer"), "loss": np.float64(2.5), "counts": np.arange(4)}
    torch.save(state, tmp_path / "model.pt")
    read = torch.load(tmp_path / "model.pt")
    assert read["args"].arch == "transformer"
    assert read["loss"] == 2.5
    assert read["counts"].tolist() == [0, 1, 2, 3]


def test_nothing_is_run(tmp_path):
    class Hostile:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "made"),)

    allow_checkpoints()
    torch.save({"model": Hostile()}, tmp_path / "model.pt")
    with pytest.raises(pickle.UnpicklingError):
        torch.load(tmp_path / "model.pt")
    assert not (tmp_path / "made").exists()
