from __future__ import annotations

import os
import subprocess
import sys

import pytest

from knn_seq.index import blas
from knn_seq.index.blas import VARIABLE, choose_kernels

AVX2 = "avx avx2 fma sse2"
AVX512 = f"{AVX2} avx512f avx512cd avx512bw avx512dq avx512vl"


@pytest.fixture
def cpuinfo(tmp_path, monkeypatch):
    """Makes the file that lists an x86 CPU's flags, as it is before anybody imports faiss."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.delitem(sys.modules, "faiss", raising=False)
    monkeypatch.setattr(blas.platform, "machine", lambda: "x86_64")

    def write(flags):
        path = tmp_path / "cpuinfo"
        path.write_text(
            f"processor\t: 0\nmodel name\t: Any\nflags\t\t: fpu {flags}\n\nprocessor\t: 1\nflags\t\t: fpu\n"
        )
        return path

    yield write
    os.environ.pop(VARIABLE, None)


@pytest.mark.parametrize(
    ("flags", "name"),
    [(AVX512, "SkylakeX"), (AVX2, "Haswell"), (f"{AVX2} avx512f", "Haswell"), ("sse2 avx", None)],
)
def test_kernels_fit_the_flags(cpuinfo, flags, name):
    assert choose_kernels(cpuinfo(flags)) == name
    assert os.environ.get(VARIABLE) == name


def test_an_unknown_cpu_is_left_alone(cpuinfo, tmp_path):
    assert choose_kernels(tmp_path / "missing") is None
    assert VARIABLE not in os.environ


def test_another_architecture_is_left_alone(cpuinfo, monkeypatch):
    monkeypatch.setattr(blas.platform, "machine", lambda: "aarch64")
    assert choose_kernels(cpuinfo(AVX512)) is None
    assert VARIABLE not in os.environ


def test_what_the_user_set_stays(cpuinfo, monkeypatch):
    monkeypatch.setenv(VARIABLE, "Zen")
    assert choose_kernels(cpuinfo(AVX512)) is None
    assert os.environ[VARIABLE] == "Zen"


def test_it_is_too_late_once_faiss_is_loaded(cpuinfo, monkeypatch):
    from knn_seq.index.faiss import faiss  # a second import would wrap its classes a second time

    monkeypatch.setitem(sys.modules, "faiss", faiss)
    assert choose_kernels(cpuinfo(AVX512)) is None
    assert VARIABLE not in os.environ


def test_faiss_really_runs_on_the_chosen_kernels():
    script = "from knn_seq.index import faiss, blas; print('chosen', blas.os.environ.get(blas.VARIABLE))"
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE} | {"OPENBLAS_VERBOSE": "2"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    chosen = next(line.split()[1] for line in done.stdout.splitlines() if line.startswith("chosen"))
    cores = [line.split()[1] for line in (done.stdout + done.stderr).splitlines() if line.startswith("Core:")]
    if chosen == "None" or not cores:
        pytest.skip("nothing is chosen on this CPU, or faiss does not use OpenBLAS here")
    assert cores[-1] == chosen
