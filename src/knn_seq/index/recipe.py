"""Which faiss recipe for how many keys, and how many of them to train it on.

Printed by `benchmarks/default_index.py --keys KEYS` on decoder states of a 256-wide model (k 64, nprobe 32,
refine factor 4, 2 cores).  The machine was not quiet, so the times are rough; bytes and recall are not touched by that.

| keys    | recipe                       | bytes/key | train s | add s | 160 queries ms | recall@64 |
|---------|------------------------------|-----------|---------|-------|----------------|-----------|
| 30,000  | Flat                         | 1024      | 0.0     | 0.1   | 39             | 1.000     |
| 30,000  | IVF128,SQ8                   | 268       | 0.3     | 0.1   | 38             | .965      |
| 30,000  | IVF128,PQ128x4fs,Refine(SQ8) | 332       | 0.9     | 0.2   | 14             | .965      |
| 30,000  | IVF128,PQ128x4fs             | 76        | 0.8     | 0.4   | 30             | .827      |
| 300,000 | Flat                         | 1024      | 0.0     | 1.5   | 4172           | 1.000     |
| 300,000 | IVF512,SQ8                   | 266       | 1.0     | 3.0   | 151            | .964      |
| 300,000 | IVF512,PQ128x4fs,Refine(SQ8) | 330       | 1.3     | 5.1   | 80             | .962      |
| 300,000 | IVF512,PQ128x4fs             | 74        | 1.4     | 4.8   | 9              | .817      |
"""

from __future__ import annotations

import math
import re

REFINED = "IVF{lists},PQ{half}x4fs,Refine(SQ8)"  # 4-bit codes find candidates, 8-bit copies of the keys rank them
COMPACT = "IVF{lists},PQ{half}x4fs"
ODD = "IVF{lists},SQ8"  # half a dimension is no whole number of codes

FLAT_ENTRIES = 20_000  # up to here an exact search is fast enough, and costs nothing to build
REFINED_BYTES = 8 << 30  # of the 8-bit copies; beyond, memory counts more than recall

SAMPLE_PER_LIST = 40  # more of them take longer and find no more neighbours; faiss warns below 39
LEAST_SAMPLE = 20_000


def default_recipe(entries: int, dimension: int) -> str:
    """The faiss factory string for so many keys of that dimension."""
    if entries <= FLAT_ENTRIES:
        return "Flat"
    if dimension % 2:
        return ODD.format(lists=lists_for(entries))
    recipe = REFINED if entries * dimension <= REFINED_BYTES else COMPACT
    return recipe.format(lists=lists_for(entries), half=dimension // 2)


def lists_for(entries: int) -> int:
    """How many inverted lists so many keys are divided into: the power of two next to the square root."""
    return 1 << round(math.log2(max(entries, 1)) / 2)


def training_size(recipe: str, entries: int) -> int:
    """How many of the keys a recipe that has to be trained is trained on."""
    lists = re.search(r"IVF(\d+)([kM]?)", recipe)
    count = int(lists[1]) * {"": 1, "k": 1 << 10, "M": 1 << 20}[lists[2]] if lists else 0
    return min(max(SAMPLE_PER_LIST * count, LEAST_SAMPLE), entries)
