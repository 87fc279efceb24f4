from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from knn_seq.index.faiss_library import faiss
from knn_seq.runtime.threads import one_thread


@pytest.fixture(autouse=True)
def _two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def numbers() -> list[int]:
    """Of the threads that torch, OpenMP, MKL (if there is one) and faiss use for this one."""
    told = re.findall(r"(?:get_num|max)_threads\(\) : (\d+)", torch.__config__.parallel_info())
    return [*map(int, told), faiss.omp_get_max_threads()]


def test_all_libraries_use_one_thread_and_then_as_many_as_before() -> None:
    before = numbers()
    assert set(before) == {2}
    with one_thread():
        assert set(numbers()) == {1}
        with one_thread():
            assert set(numbers()) == {1}
        assert set(numbers()) == {1}
    assert numbers() == before


def test_nothing_changes_if_it_is_not_wanted() -> None:
    with one_thread(False):
        assert set(numbers()) == {2}


def test_an_exception_does_not_keep_it_at_one_thread() -> None:
    with pytest.raises(ZeroDivisionError), one_thread():
        _ = 1 / 0
    assert set(numbers()) == {2}


def test_a_user_who_has_one_thread_keeps_one() -> None:
    torch.set_num_threads(1)
    with one_thread():
        assert set(numbers()) == {1}
    assert set(numbers()) == {1}


def test_threads_beside_it_keep_theirs() -> None:
    with ThreadPoolExecutor(1) as known, ThreadPoolExecutor(1) as new:
        assert known.submit(torch.get_num_threads).result() == 2
        with one_thread():
            assert known.submit(torch.get_num_threads).result() == 2
            assert new.submit(torch.get_num_threads).result() == 2  # its first use of torch
        assert new.submit(torch.get_num_threads).result() == 2


def test_a_new_thread_is_back_at_the_number_that_it_began_with() -> None:
    def inside_and_after() -> tuple[int, int]:
        with one_thread():
            inside = torch.get_num_threads()
        return inside, torch.get_num_threads()

    with ThreadPoolExecutor(1) as new:
        assert new.submit(inside_and_after).result() == (1, 2)
