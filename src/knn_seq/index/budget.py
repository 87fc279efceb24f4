"""How much memory an index may take."""

from __future__ import annotations

from knn_seq.runtime.memory import available_memory
from knn_seq.runtime.sizes import parse_bytes

FREE_SHARE = 0.5  # of what is free, if the user gives no budget
INDEX_SHARE = 0.75  # of the budget; the rest is needed while the index is built
WORKING_SHARE = 0.25  # of the budget: a part while it is filled, or the sample that trains it
PARTS, MOST_PARTS = 8, 64  # enough of them for several workers; few enough to be opened together
PART_ENTRIES = 2_000_000  # of a part at most, if there are not too many of them: some tens of seconds of work
LEAST_PART_ENTRIES = 100_000  # a smaller index is filled at once


def memory_budget(memory: str | int | None) -> int:
    """The bytes that a user allows, or half of what is free."""
    return parse_bytes(memory) if memory is not None else int(FREE_SHARE * available_memory())


def part_entries(entries: int, bytes_per_entry: float, budget: int) -> int:
    """How many entries a part of an index has, whoever fills it: it depends on the keys and the memory alone."""
    wanted = min(max(entries // MOST_PARTS, PART_ENTRIES), max(entries // PARTS, LEAST_PART_ENTRIES))
    return max(min(wanted, int(WORKING_SHARE * budget / max(bytes_per_entry, 1))), 1)
