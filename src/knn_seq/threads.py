"""How the threads of torch and faiss wait for each other."""

from __future__ import annotations

import os


def wait_politely() -> None:
    """Let threads that have nothing to do sleep soon; to be called before torch is first imported.

    GNU OpenMP's threads spin for milliseconds at every barrier.  On a machine that others use too, a thread that
    spins keeps the one it waits for off the processor, and everything takes several times as long.  What the user
    has set is left alone.
    """
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = "2000"
