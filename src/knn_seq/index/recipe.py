from __future__ import annotations
import re

def default_recipe(entries: int, dimension: int) -> str:
    return "Flat"

def training_size(recipe: str, entries: int) -> int:
    return 20000
