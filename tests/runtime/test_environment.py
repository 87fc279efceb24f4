from __future__ import annotations

import json
import os
import platform
import subprocess
import sys

import pytest

from knn_seq.runtime import environment
from knn_seq.runtime.environment import avoid_broken_amx, cpu_flags, limit_spinning

RETURN, ILLEGAL = bytes.fromhex("c3"), bytes.fromhex("0f0b")
THREADS, INSTRUCTIONS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"), ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
on_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="machine code of another processor")


@pytest.fixture
def clean(monkeypatch):
    """An environment in which the user has set nothing."""
    for name in THREADS + INSTRUCTIONS:
        monkeypatch.setenv(name, "")  # so that it is restored
        monkeypatch.delenv(name)
    return monkeypatch


@pytest.fixture
def machine(clean, tmp_path):
    """A machine whose CPU announces these features, and whose AMX works or does not."""

    def make(flags: str, amx_works: bool) -> None:
        cpuinfo = tmp_path / "cpuinfo"
        cpuinfo.write_text(f"processor\t: 0\nflags\t\t: {flags}\n")
        clean.setattr(environment, "cpu_flags", lambda: cpu_flags(cpuinfo))
        clean.setattr(environment, "_runs_in_child", lambda code: amx_works)
        clean.setattr(platform, "machine", lambda: "x86_64")

    return make


def test_idle_threads_sleep_soon(clean):
    limit_spinning()
    assert os.environ["GOMP_SPINCOUNT"] == "2000"


@pytest.mark.parametrize(("name", "value"), [("OMP_WAIT_POLICY", "active"), ("GOMP_SPINCOUNT", "7")])
def test_what_the_user_set_for_threads_stays(clean, name, value):
    clean.setenv(name, value)
    limit_spinning()
    assert {each: os.environ[each] for each in THREADS if each in os.environ} == {name: value}


@pytest.mark.parametrize(
    ("flags", "amx_works", "expected"),
    [
        ("fpu avx512_bf16 amx_bf16", False, "AVX512_CORE_FP16"),
        ("fpu avx512_bf16 amx_bf16", True, None),
        ("fpu avx512_bf16", False, None),
    ],
)
def test_only_amx_that_is_broken_is_avoided(machine, flags, amx_works, expected):
    machine(flags, amx_works)
    avoid_broken_amx()
    assert os.environ.get("ONEDNN_MAX_CPU_ISA") == expected


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_what_the_user_set_for_instructions_stays(machine, clean, name):
    machine("amx_bf16", amx_works=False)
    clean.setenv(name, "ALL")
    avoid_broken_amx()
    assert {each: os.environ[each] for each in INSTRUCTIONS if each in os.environ} == {name: "ALL"}


def test_a_machine_without_cpuinfo_has_no_flags(tmp_path):
    assert cpu_flags(tmp_path / "nothing") == set()


@on_x86
def test_code_that_is_illegal_kills_only_the_child(capfd):
    assert environment._runs_in_child(RETURN)
    assert not environment._runs_in_child(ILLEGAL)
    said = "".join(capfd.readouterr()).splitlines()
    assert not [line for line in said if "fork_posix.cc" not in line]  # gRPC's note, if another test has loaded it


@on_x86
def test_a_child_that_fails_ends(monkeypatch, capfd):
    """Or there would be two processes that run the program."""

    def fail(*arguments: object) -> None:
        raise OSError("not allowed")

    process = os.getpid()
    monkeypatch.setattr(environment.resource, "setrlimit", fail)
    assert not environment._runs_in_child(RETURN)
    assert os.getpid() == process


def test_importing_the_package_prepares_the_environment():
    clean = {name: value for name, value in os.environ.items() if name not in THREADS + INSTRUCTIONS}
    code = "import json, os, knn_seq; print(json.dumps(dict(os.environ)))"
    for given, expected in ({}, "2000"), ({"GOMP_SPINCOUNT": "9"}, "9"):
        done = subprocess.run(
            [sys.executable, "-c", code], env=clean | given, capture_output=True, text=True, check=True
        )
        assert json.loads(done.stdout)["GOMP_SPINCOUNT"] == expected
