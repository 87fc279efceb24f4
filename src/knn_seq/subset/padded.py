from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from knn_seq.errors import InvalidSetting
from knn_seq.index.neighbours import Neighbours
from knn_seq.index.torch import product_rounding
from knn_seq.settings import DISTANCE_METRICS

MAX_VALUES = 1 << 24  # in a temporary array
EXTRA_CANDIDATES = 8  # candidates beyond k
UNCHECKED_EXTRA_CANDIDATES = 64  # the same where it is not checked that they were enough
WIDENING = 8  # times as many candidates where those were too few
HALF_ROUNDING = {torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}  # of a product in that type


class SentenceKeys(NamedTuple):
    """The entries that one sentence of a batch searches."""

    keys: Tensor  # (n, dimension), of any floating type
    ids: Tensor  # (n,) int64
    values: Tensor  # (n,) int64


class PaddedKeys:
    """Exact search where every sentence of a batch has its own few keys, on the device where the keys are.

    One batched product a step finds candidates; sums of squared differences (or products) in float32 rank them.  On a
    CPU a row is searched again with more candidates if rounding in the product may have hidden a nearer key, so that
    the result is exact.  Elsewhere to know that would mean to wait for the device at every step; there are more
    candidates at once instead.  Equally near entries come in the order of their ids.  Distances are those of
    `SearchIndex`.

    The keys stay in their own type.  The product is made in float32 on a CPU, in the keys' type elsewhere.

    Args:
        sentences: What each sentence of the batch searches; some may have no keys.
        metric: "l2", "ip" or "cosine".
        exact: Whether rows are searched again; None: on a CPU.
    """

    def __init__(self, sentences: Sequence[SentenceKeys], metric: str = "l2", exact: bool | None = None) -> None:
        if metric not in DISTANCE_METRICS:
            raise InvalidSetting(f"There is no metric '{metric}': choose from {', '.join(DISTANCE_METRICS)}.")
        self.metric = metric
        lengths = [len(sentence.ids) for sentence in sentences]
        self.longest = max(lengths, default=0)
        if not self.longest:
            return
        like = next(sentence.keys for sentence in sentences if len(sentence.ids))
        self.device, shape = like.device, (len(sentences), self.longest)
        self.exact = self.device.type == "cpu" if exact is None else exact
        self.product_dtype = torch.float32 if self.device.type == "cpu" else like.dtype
        self.keys = like.new_zeros(*shape, like.shape[1])
        self.ids = torch.full(shape, -1, device=self.device)
        self.values = torch.zeros_like(self.ids)
        # Where all keys are long and near each other, products with queries from there lose fewer digits.
        self.centres = torch.zeros(len(sentences), like.shape[1], device=self.device)  # (batch, dimension)
        self.offsets = torch.full(shape, torch.inf, device=self.device)  # what a key adds to its distance; padding: inf
        self.radii = torch.zeros(len(sentences), device=self.device)  # the longest way from a centre to a key, squared
        for number, (keys, ids, values) in enumerate(sentences):
            if not len(ids):
                continue
            self.keys[number, : len(ids)] = keys
            self.ids[number, : len(ids)] = ids
            self.values[number, : len(ids)] = values
            comparable = self._comparable(keys)
            if metric == "l2":
                self.centres[number] = comparable.mean(dim=0)
            squares = (comparable - self.centres[number]).square().sum(dim=1)
            self.radii[number] = squares.amax()
            self.offsets[number, : len(ids)] = {"l2": 1.0, "ip": 0.0, "cosine": 0.5}[metric] * squares
        self.sizes = torch.tensor(lengths, device=self.device)
        if metric == "cosine":  # the keys stay as they are, so their products are divided by their lengths
            self.norms = torch.stack([keys.float().norm(dim=1).clamp(min=1e-12) for keys in self.keys])

    def search(self, queries: Tensor, sentences: Tensor, k: int) -> Neighbours:
        """The k nearest entries of each query among those of its sentence, on the device of the queries.

        Args:
            queries: (rows, dimension).
            sentences: For each row its sentence in the batch, (rows,), on the CPU; as many as one likes, in any order.
            k: How many.
        """
        result = Neighbours.none(len(queries), k, queries.device)
        possible = min(k, self.longest)
        if possible and len(queries):
            with torch.no_grad(), torch.autocast(self.device.type, enabled=False):
                asked = self._comparable(queries.to(self.device))
                found = self._nearest(
                    asked,
                    sentences,
                    possible,
                    possible + (EXTRA_CANDIDATES if self.exact else UNCHECKED_EXTRA_CANDIDATES),
                )
            result.distances[:, :possible] = found.distances.to(queries.device)
            result.values[:, :possible] = found.values.to(queries.device)
            result.ids[:, :possible] = found.ids.to(queries.device)
        return result

    def _comparable(self, vectors: Tensor) -> Tensor:
        vectors = vectors.float()
        return torch.nn.functional.normalize(vectors, dim=1) if self.metric == "cosine" else vectors

    def _nearest(self, queries: Tensor, sentences: Tensor, k: int, wide: int) -> Neighbours:
        """The k nearest, out of so many candidates, or more for the queries that need them."""
        wide, of_row = min(wide, self.longest), sentences.to(self.device)
        places, farthest = self._candidates(queries, sentences, wide)
        found = self._ranked(queries, of_row, places, k)
        if self.exact and wide < self.longest:
            certain = farthest - self._rounding(queries, of_row) > found.distances[:, -1]
            doubtful = (~certain & (self.sizes[of_row] > wide)).nonzero().squeeze(1)
            if len(doubtful):
                better = self._nearest(queries[doubtful], sentences[doubtful.cpu()], k, WIDENING * wide)
                found.distances[doubtful] = better.distances
                found.values[doubtful] = better.values
                found.ids[doubtful] = better.ids
        return found

    def _candidates(self, queries: Tensor, sentences: Tensor, wide: int) -> tuple[Tensor, Tensor]:
        """The places of the nearest keys by a product, (rows, wide), and the distance of the farthest, (rows,)."""
        counts = torch.bincount(sentences, minlength=len(self.keys))
        order = sentences.argsort(stable=True)
        turns = torch.empty_like(order)  # each row's number among those of its sentence
        turns[order] = torch.arange(len(order)) - (counts.cumsum(0) - counts)[sentences[order]]
        rows_of, sentences, turns = counts.tolist(), sentences.to(self.device), turns.to(self.device)
        asked = queries - self.centres[sentences]
        table = asked.new_zeros(len(self.keys), max(rows_of), asked.shape[1])
        table[sentences, turns] = asked
        places = torch.zeros(*table.shape[:2], wide, dtype=torch.int64, device=self.device)
        farthest = table.new_zeros(table.shape[:2])
        for batch, rows in self._blocks(rows_of):
            near = self._scores(table[batch, rows], batch).topk(wide, largest=False, sorted=False)
            places[batch, rows], farthest[batch, rows] = near.indices, near.values.amax(dim=2)
        last = farthest[sentences, turns]
        if self.metric == "l2":
            last = last + (asked * (asked + 2 * self.centres[sentences])).sum(dim=1)
        elif self.metric == "cosine":
            last = last + asked.square().sum(dim=1) / 2
        return places[sentences, turns], last

    def _blocks(self, rows_of: list[int]) -> Iterator[tuple[slice, slice]]:
        """Sentences, and rows of each of them, whose keys in float32 and whose distances do not fill the memory."""
        most = max(rows_of)
        rows = min(most, max(MAX_VALUES // self.longest, 1))
        step = max(MAX_VALUES // (self.longest * max(rows, self.keys.shape[2])), 1)
        for first in range(0, len(rows_of), step):
            most = max(rows_of[first : first + step])
            for start in range(0, most, rows):
                yield slice(first, first + step), slice(start, min(start + rows, most))

    def _scores(self, asked: Tensor, batch: slice) -> Tensor:
        """Distances without what is the same for all keys of a row, (sentences, rows, longest); padding is infinite."""
        dtype = self.product_dtype
        lengths = asked.norm(dim=2, keepdim=True).clamp(min=1e-12)  # products with longer queries might overflow
        products = ((asked / lengths).to(dtype) @ self.keys[batch].to(dtype).mT).float() * lengths
        if self.metric == "cosine":
            products = products / self.norms[batch].unsqueeze(1)
        return torch.add(self.offsets[batch].unsqueeze(1), products, alpha=-2 if self.metric == "l2" else -1)

    def _ranked(self, queries: Tensor, sentences: Tensor, places: Tensor, k: int) -> Neighbours:
        """The k nearest keys by their exact distances, among those at the given places, (rows, candidates)."""
        ids, order = self.ids[sentences.unsqueeze(1), places].sort(dim=1)
        places = places.gather(1, order)
        distances = torch.empty(places.shape, device=self.device)
        step = max(MAX_VALUES // (places.shape[1] * queries.shape[1]), 1)
        for start in range(0, len(queries), step):
            rows = slice(start, start + step)
            keys = self.keys[sentences[rows].unsqueeze(1), places[rows]].flatten(0, 1)
            asked = queries[rows].repeat_interleave(places.shape[1], dim=0)
            distances[rows] = self._distances(asked, self._comparable(keys)).view(-1, places.shape[1])
        distances, order = distances.masked_fill_(ids < 0, torch.inf).sort(dim=1, stable=True)
        order, distances = order[:, :k], distances[:, :k]
        values = self.values[sentences.unsqueeze(1), places.gather(1, order)]
        return Neighbours(distances, values, ids.gather(1, order))

    def _distances(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Of each query to the key beside it, both (n, dimension)."""
        if self.metric == "ip":
            return -(queries * keys).sum(dim=1)
        distances = (queries - keys).square().sum(dim=1)
        return distances / 2 if self.metric == "cosine" else distances

    def _rounding(self, queries: Tensor, sentences: Tensor) -> Tensor:
        """How much a distance out of a product may differ from an exact one, (rows,)."""
        half = HALF_ROUNDING.get(self.product_dtype, 0.0)
        # Errors of single additions cancel each other, like steps of a random walk: 4 times their expected sum.
        relative = 4 * math.sqrt(queries.shape[1]) * 2**-24 + product_rounding() + half
        centres = self.centres[sentences]
        asked = (queries - centres).square().sum(dim=1).sqrt()
        widest = self.radii[sentences].sqrt()
        longest = widest + centres.square().sum(dim=1).sqrt()
        return relative * (asked.square() + 2 * asked * longest + widest.square())
