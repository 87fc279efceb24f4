"""The right BLAS kernels for faiss.

The OpenBLAS inside the faiss wheels is older than many CPUs.  One that it does not know gets kernels of 2004 and a
fifth of the speed, unless an environment variable names better ones before the library is loaded.
"""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

from knn_seq.runtime.environment import CPUINFO, cpu_flags

VARIABLE = "OPENBLAS_CORETYPE"
KERNELS = {  # best first: the CPU flags that OpenBLAS's kernels of that name need
    "SkylakeX": {"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl", "avx2", "fma"},
    "Haswell": {"avx2", "fma"},
}


def choose_kernels(cpuinfo: Path = CPUINFO) -> str | None:
    """Name the kernels for this CPU in the environment; must run before faiss is first imported.

    What the user has set stays, and where nothing is known of the CPU, or it is no x86, OpenBLAS chooses by itself.

    Returns:
        The name that was set, or None.
    """
    if VARIABLE in os.environ or "faiss" in sys.modules or platform.machine().lower() not in ("x86_64", "amd64"):
        return None
    flags = cpu_flags(cpuinfo)
    for name, needed in KERNELS.items():
        if needed <= flags:
            os.environ[VARIABLE] = name
            return name
    return None
