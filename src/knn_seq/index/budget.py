"""How much memory an index may take."""

from __future__ import annotations

from knn_seq.sizes import available_memory, parse_bytes

FREE_SHARE = 0.5  # of what is free, if the user gives no budget
INDEX_SHARE = 0.75  # of the budget; the rest is needed while the index is built


def memory_budget(memory: str | int | None) -> int:
    """The bytes that a user allows, or half of what is free."""
    return parse_bytes(memory) if memory is not None else int(FREE_SHARE * available_memory())
