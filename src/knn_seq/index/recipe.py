"""Which faiss recipe for how many keys, and how many of them to train it on.

Measured as benchmarks/default_index.py does, on decoder states of a 256-wide model (k 64, nprobe 32, refine factor 4;
CPU time of one core):

| keys      | recipe                        | bytes/key | build s | 5 queries ms | 160 queries ms | recall@64 |
|-----------|-------------------------------|-----------|---------|--------------|----------------|-----------|
| 20,000    | Flat                          | 1024      | 0.1     | 6.1          | 31             | 1         |
| 20,000    | IVF128,PQ128x4fs,Refine(SQ8)  | 332       | 0.9     | 0.5          | 14             | .956      |
| 300,000   | IVF512,SQ8                    | 266       | 3.6     | 5.6          | 172            | .952      |
| 300,000   | IVF512,PQ128x4fs,Refine(SQ8)  | 330       | 4.8     | 1.6          | 29             | .951      |
| 300,000   | IVF512,PQ128x4fs              | 74        | 4.7     | 0.7          | 21             | .794      |
| 300,000   | IVF512,RaBitQfs               | 50        | 3.9     | 1.2          | 32             | .759      |
| 1,000,000 | IVF1024,SQ8                   | 265       | 15.5    | 8.9          | 320            | .957      |
| 1,000,000 | IVF1024,PQ128x4fs,Refine(SQ8) | 329       | 21.5    | 2.7          | 44             | .951      |
"""

from __future__ import annotations

import math
import re

REFINED = "IVF{lists},PQ{half}x4fs,Refine(SQ8)"  # 4-bit codes find candidates, 8-bit copies of the keys rank them
COMPACT = "IVF{lists},PQ{half}x4fs"
ODD = "IVF{lists},SQ8"  # half a dimension is no whole number of codes

FLAT_ENTRIES = 20_000  # up to here an exact search costs a few milliseconds a step, and nothing to build
REFINED_BYTES = 8 << 30  # of the 8-bit copies; beyond, memory counts more than recall

SAMPLE_PER_LIST = 40  # 256 a list find no more neighbours and take four times as long; faiss warns below 39
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
