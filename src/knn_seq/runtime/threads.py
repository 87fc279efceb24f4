"""One thread of OpenMP and MKL for work that is too small for several."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

import torch


class _Library(NamedTuple):
    """What torch computes with, as far as it can be told how many threads to use.

    Not through `torch.set_num_threads`: it also counts for threads that begin meanwhile, and lets MKL use all threads
    for the smallest product ever after.
    """

    set_openmp: Callable[[int], object]
    set_mkl: Callable[[int], int] | None  # returns what was set before, 0: nothing


@contextmanager
def one_thread(wanted: bool = True) -> Iterator[None]:
    """Let what this thread of Python asks of torch be done by it alone; others keep their threads.

    Args:
        wanted: False: nothing changes.
    """
    before = torch.get_num_threads() if wanted else 1
    library = _library() if before > 1 else None
    if library is None:
        yield
        return
    library.set_openmp(1)
    mkl = 0 if library.set_mkl is None else library.set_mkl(1)
    try:
        yield
    finally:
        library.set_openmp(before)
        if library.set_mkl is not None:
            library.set_mkl(mkl)


@cache
def _library() -> _Library | None:
    """None: here torch does without OpenMP, or does not show it."""
    try:
        library = ctypes.CDLL(torch._C.__file__)  # and whatever it was linked to
        return _Library(library.omp_set_num_threads, getattr(library, "MKL_Set_Num_Threads_Local", None))
    except (OSError, AttributeError):
        return None
