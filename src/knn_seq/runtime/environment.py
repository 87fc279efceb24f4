"""Environment variables that libraries read when they are first used.  What the user has set stays."""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import os
import platform
import resource
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA = 158, 0x1023, 18  # Linux lets a process use AMX when it has asked for it
# Configures three tiles on the stack, multiplies them (tdpbf16ps) and returns.
TILE_PRODUCT = bytes.fromhex(
    "31c0488d7c2480b908000000f348abc644248001c74424904000400066c74424944000c74424b001010100"
    "c4e27849442480c4e27b49c0c4e27b49c8c4e27b49d0c4e26a5cc1c4e27849c0c3"
)


def prepare_environment() -> None:
    """Set what makes torch and faiss fast and safe on this machine; to be called before torch is first used."""
    limit_spinning()
    avoid_broken_amx()


def limit_spinning() -> None:
    """Let threads that have nothing to do sleep soon.

    GNU OpenMP's threads spin for milliseconds at every barrier.  On a machine that others use too, a thread that
    spins keeps the one it waits for off the processor, and everything takes several times as long.
    """
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = "2000"


def avoid_broken_amx() -> None:
    """Keep oneDNN, torch's library for products in half precision, from instructions that this machine cannot run.

    Some virtual machines announce AMX, but kill the process that uses it.
    """
    if {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"} & os.environ.keys():
        return
    if "amx_bf16" in cpu_flags() and platform.machine() == "x86_64" and not _runs_in_child(TILE_PRODUCT):
        os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_FP16"


def cpu_flags(cpuinfo: Path = CPUINFO) -> set[str]:
    """The features of the CPU as Linux names them; none on other systems."""
    try:
        with cpuinfo.open() as lines:
            return next((set(line.partition(":")[2].split()) for line in lines if line.startswith("flags")), set())
    except OSError:
        return set()


def _runs_in_child(code: bytes) -> bool:
    """Whether machine code runs to its end; it is run in a child process, which it may kill."""
    child = os.fork()
    if not child:
        try:
            faulthandler.disable()  # or it would report what is to be expected
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
            page.write(code)
            ctypes.CDLL(None).syscall(ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA)
            ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
            os._exit(0)
        finally:
            os._exit(1)  # whatever happens, the child must not run the parent's program
    return os.waitpid(child, 0)[1] == 0
