"""torch: exact search on any device."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from knn_seq.errors import DamagedFile, InvalidSetting
from knn_seq.index.base import INDEXES, SearchIndex
from knn_seq.registry import Option
from knn_seq.runtime.memory import MemoryNeed

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
BLOCK = 1 << 16  # keys that a product is made with at a time
BLOCK_VALUES = 1 << 25  # in a block of distances
EXTRA_CANDIDATES = 8  # candidates beyond k
WIDENING = 8  # times as many candidates where those were too few
HEADER = 256  # bytes, at the beginning of a file


class Block(NamedTuple):
    """Some entries."""

    keys: Tensor  # (n, dimension)
    ids: Tensor  # (n,) int64
    squares: Tensor  # (n,) float32, of the keys' distances from the centre


@INDEXES.register("torch")
class TorchIndex(SearchIndex):
    """All keys as they are, on one device: for datastores that fit there, and the reference for every other index.

    A matrix product finds candidates, sums of squared differences (or products) in float32 rank them.  If rounding in
    the product may have hidden a nearer key, the search is repeated with more candidates, so the result is exact, and
    the same however the queries are batched.  Equally near entries come in the order of their ids.

    Args:
        dimension: Of keys and queries.
        metric: "l2", "ip" or "cosine".
        recipe: None or "Flat".
        **options: Those of `declared_options`.
    """

    declared_options = {
        "device": Option(
            None, "such as cpu, cuda:1 or mps (default CUDA if there is, else the CPU)", str, when_built=True
        ),
        "dtype": Option("float32", "of the stored keys: float32, float16 or bfloat16", str, when_built=True),
    }
    file_name = "index.torch"

    def __init__(self, dimension: int, metric: str = "l2", recipe: str | None = None, **options: Any) -> None:
        super().__init__(dimension, metric, recipe or "Flat", **options)
        if self.recipe != "Flat":
            raise InvalidSetting(
                f"The torch index makes nothing from the recipe '{self.recipe}': give none, or 'Flat'."
            )
        if self.options["dtype"] not in DTYPES:
            raise InvalidSetting(
                f"Keys cannot be stored as '{self.options['dtype']}': choose from {', '.join(DTYPES)}."
            )
        self.dtype = DTYPES[self.options["dtype"]]
        self.device = _device(self.options["device"])
        if self.options["device"] is not None:
            self.options["device"] = str(self.device)
        self._blocks: list[Block] = []
        self._largest = -1  # of all ids, removed ones too
        # Where all keys are long and near each other, products with queries from there lose fewer digits.
        self._centre = torch.zeros(dimension, device=self.device)

    def __len__(self) -> int:
        return sum(len(block.ids) for block in self._blocks)

    @property
    def memory(self) -> int:
        """Keys, ids and their distances from the centre."""
        return sum(part.nbytes for block in self._blocks for part in block)

    def _train(self, sample: Tensor) -> None:
        pass

    def _add(self, keys: Tensor, ids: Tensor) -> None:
        numbers = ids.to(self.device)
        # Ids that are numbered on, the usual case, need not be compared with all others.
        old = self._blocks if int(ids.min()) <= self._largest else []
        if any(bool(torch.isin(numbers, block.ids).any()) for block in old) or len(np.unique(ids.numpy())) < len(ids):
            raise InvalidSetting(
                "An id is given twice, or the index has it already: give every entry an id of its own."
            )
        self._append(keys.to(self.device, self.dtype), numbers)

    def _append(self, keys: Tensor, ids: Tensor) -> None:
        if not self._blocks and self.metric != "ip":
            self._centre = keys.float().mean(dim=0)
        squares = (keys.float() - self._centre).square().sum(dim=1)
        if not bool(squares.isfinite().all()):
            raise InvalidSetting(
                f"A key has too large values for {self.options['dtype']}: choose another dtype, or scale them."
            )
        block = Block(keys, ids, squares)
        # Only blocks of like size are joined, so that adding one by one copies each key a few times and no more.
        while self._blocks and len(self._blocks[-1].ids) <= len(block.ids) <= BLOCK - len(self._blocks[-1].ids):
            block = Block(*map(torch.cat, zip(self._blocks.pop(), block, strict=True)))
        self._blocks.append(block)
        self._largest = max(self._largest, int(ids.max()))

    def _remove(self, ids: Tensor) -> None:
        removed = ids.to(self.device)
        for place, block in enumerate(self._blocks):
            left = torch.isin(block.ids, removed, invert=True)
            if not bool(left.all()):
                self._blocks[place] = Block(*(part[left] for part in block))
        self._blocks = [block for block in self._blocks if len(block.ids)]

    def _search(self, queries: Tensor, k: int, options: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        with torch.no_grad(), torch.autocast(self.device.type, enabled=False):
            distances, ids = self._nearest(queries.to(self.device), k, k + EXTRA_CANDIDATES)
        return (distances / 2 if self.metric == "cosine" else distances), ids

    def _nearest(self, queries: Tensor, k: int, wide: int) -> tuple[Tensor, Tensor]:
        """Distances and ids, (n, k), out of so many candidates, or more for the queries that need them."""
        wide = min(wide, len(self))
        step = max(BLOCK_VALUES // max(BLOCK, wide), 1)
        parts = [self._certain(queries[at : at + step], k, wide) for at in range(0, len(queries), step)]
        distances, ids = (torch.cat(part) for part in zip(*parts, strict=True))
        return distances, ids

    def _certain(self, queries: Tensor, k: int, wide: int) -> tuple[Tensor, Tensor]:
        rows, farthest = self._candidates(queries, wide)
        distances, ids = self._ranked(queries, rows, k)
        if wide < len(self):
            doubtful = (farthest - self._rounding(queries) > distances[:, -1]).logical_not().nonzero().squeeze(1)
            if len(doubtful):
                distances[doubtful], ids[doubtful] = self._nearest(queries[doubtful], k, WIDENING * wide)
        return distances, ids

    def _candidates(self, queries: Tensor, wide: int) -> tuple[Tensor, Tensor]:
        """The rows of the nearest keys by a product, (n, wide), in no order, and the distance of the farthest, (n,)."""
        asked = queries - self._centre
        near, rows = queries.new_empty(len(queries), 0), torch.empty(len(queries), 0, dtype=torch.int64).to(self.device)
        for first, block in self._numbered():
            keys = block.keys.float().T
            # By l2 without what is the same for all keys.
            distances = -(asked @ keys) if self.metric == "ip" else torch.addmm(block.squares, asked, keys, alpha=-2)
            nearest = distances.topk(min(wide, len(block.ids)), largest=False, sorted=False)
            near, rows = torch.cat([near, nearest.values], dim=1), torch.cat([rows, nearest.indices + first], dim=1)
            if near.shape[1] > wide:
                near, chosen = near.topk(wide, largest=False, sorted=False)
                rows = rows.gather(1, chosen)
        farthest = near.amax(dim=1)
        return rows, farthest if self.metric == "ip" else farthest + (asked * (asked + 2 * self._centre)).sum(dim=1)

    def _ranked(self, queries: Tensor, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Exact distances and ids of the k nearest keys among those in the given rows, (n, candidates)."""
        flat, distances = rows.flatten(), queries.new_empty(rows.numel())
        for chunk in self._chunks(len(flat)):
            keys = self._gather(0, flat[chunk]).float()
            asked = queries[torch.arange(len(flat), device=self.device)[chunk] // rows.shape[1]]
            if self.metric == "ip":
                distances[chunk] = -(asked * keys).sum(dim=1)
            else:
                distances[chunk] = (asked - keys).square().sum(dim=1)
        ids, order = self._gather(1, flat).view(rows.shape).sort(dim=1)
        distances, order = distances.view(rows.shape).gather(1, order).sort(dim=1, stable=True)
        return distances[:, :k], ids.gather(1, order)[:, :k]

    def _rounding(self, queries: Tensor) -> Tensor:
        """How much a distance out of a product may differ from an exact one, (n,)."""
        # Errors of single additions cancel each other, like steps of a random walk: 4 times their expected sum.
        relative = 4 * math.sqrt(self.dimension) * 2**-24 + product_rounding()
        widest = torch.stack([block.squares.amax() for block in self._blocks]).amax().sqrt()
        longest = widest + self._centre.square().sum().sqrt()
        asked = (queries - self._centre).square().sum(dim=1).sqrt()
        return relative * (asked.square() + 2 * asked * longest + widest.square())

    def _numbered(self) -> Iterator[tuple[int, Block]]:
        """The blocks, each after the row that it begins with."""
        first = 0
        for block in self._blocks:
            yield first, block
            first += len(block.ids)

    def _gather(self, part: int, rows: Tensor) -> Tensor:
        """A part of the entries in the given rows, (n,) to (n, ...)."""
        like = self._blocks[0][part]
        if len(self._blocks) == 1:
            return like[rows]
        result = like.new_empty(len(rows), *like.shape[1:])
        for first, block in self._numbered():
            if self.device.type != "cpu":  # to know which rows are here would mean to wait for the device
                places = rows - first
                inside = (places >= 0) & (places < len(block.ids))
                found = block[part][places.clamp(0, len(block.ids) - 1)]
                result = torch.where(inside.view(-1, *[1] * (like.dim() - 1)), found, result)
                continue
            here = ((rows >= first) & (rows < first + len(block.ids))).nonzero().squeeze(1)
            result[here] = block[part][rows[here] - first]
        return result

    def _save(self, path: Path) -> None:
        facts = {"index": "torch", "dtype": self.options["dtype"], "dimension": self.dimension, "entries": len(self)}
        with path.open("wb") as file:
            file.write(json.dumps(facts).encode().ljust(HEADER))
            for part in (1, 0):
                for block in self._blocks:
                    file.write(block[part].cpu().contiguous().view(torch.uint8).numpy().data)

    def _memory_to_load(self, path: Path) -> MemoryNeed:
        return MemoryNeed(0, path.stat().st_size)

    def _load(self, path: Path) -> None:
        with path.open("rb") as file:
            header = file.read(HEADER)
        try:
            facts = json.loads(header)
            kind, dtype, dimension, entries = (facts[name] for name in ("index", "dtype", "dimension", "entries"))
            expected = HEADER + entries * (8 + dimension * DTYPES[dtype].itemsize)
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedFile(f"{path} is not an index of torch: build the index again.") from error
        if kind != "torch" or dimension != self.dimension or path.stat().st_size != expected:
            raise DamagedFile(f"{path} does not hold {entries} keys of dimension {self.dimension}: build it again.")
        # A private map: on the CPU the keys stay in the file until they are needed.
        data = torch.from_numpy(np.memmap(path, np.uint8, "c"))
        ids = data[HEADER : HEADER + 8 * entries].view(torch.int64)
        keys = data[HEADER + 8 * entries :].view(DTYPES[dtype]).view(entries, dimension)
        self._blocks = []
        for start in range(0, entries, BLOCK):
            block = slice(start, start + BLOCK)
            self._append(keys[block].to(self.device, self.dtype), ids[block].to(self.device))


def _device(name: Any) -> torch.device:
    """The device of that name, if this machine has it."""
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        raise InvalidSetting(f"There is no device '{name}' for the index here: name another, such as 'cpu'.") from error
    return device


def product_rounding() -> float:
    """How much torch rounds the factors of a product, relative to them; the user may have allowed it."""
    try:
        return {"highest": 0.0, "high": 2**-11}.get(torch.get_float32_matmul_precision(), 2**-8)
    except RuntimeError:  # torch does not tell if the precision was set by its newer settings
        return 2**-8
