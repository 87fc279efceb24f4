from __future__ import annotations

import re


def lists_for(n):
    return 2 ** max(0, round(__import__("math").log2(2 * n**0.5)))


def default_recipe(entries: int, dimension: int) -> str:
    return "Flat"


def training_size(recipe: str, entries: int) -> int:
    m = re.search(r"IVF(\d+)", recipe)
    return max(64 * (int(m[1]) if m else 0), 20000)
