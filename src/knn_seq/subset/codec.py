"""Keys as short codes: product quantization, behind a rotation or projection or none."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knn_seq.errors import DamagedFile, InvalidSetting
from knn_seq.index.faiss_library import faiss
from knn_seq.index.faiss_library.adding import packed_codes
from knn_seq.index.faiss_library.layers import layers, transforms
from knn_seq.index.faiss_library.training import apply_transform, least_sample, train
from knn_seq.index.recipe import PROJECTED_DIMENSION, REFINE_KEYS
from knn_seq.quantize import ProductQuantizer
from knn_seq.storage.atomic import disk_errors, partial_of, publish

EXACT = "Flat"  # no codes: the keys themselves
EXACT_ENTRIES = 1_000  # up to here codes would save nothing
WIDEST = 128  # dimensions to project onto: a subset is scanned completely, and its candidates are ranked by the keys
SAMPLE = 65_536  # keys to learn from; more lower the error by little
RECIPE = re.compile(r"((PCA\d+|OPQ\d+(_\d+)?),)?PQ\d+(x4|x8)?(fs)?")


def default_codes(entries: int, dimension: int, metric: str = "l2") -> str:
    """The recipe of codes for so many keys: 4-bit codes find candidates, and the stored keys rank them."""
    if entries <= EXACT_ENTRIES or dimension % 2:
        return EXACT
    if dimension < PROJECTED_DIMENSION or metric == "ip":  # PCA moves the origin, and inner products with it
        return f"PQ{dimension // 2}x4{REFINE_KEYS}"
    projected = min(dimension // 2 // 4 * 4, WIDEST)
    return f"PCA{projected},PQ{projected // 2}x4{REFINE_KEYS}"


class KeyCodec:
    """Turns keys into codes and back.

    Args:
        dimension: Of the keys.
        metric: "l2", "ip" or "cosine".
        recipe: PQ64 (8-bit codes) or PQ64x4 (4-bit), behind PCA128, OPQ64 or OPQ64_128 and a comma, or nothing.
    """

    def __init__(self, dimension: int, metric: str, recipe: str) -> None:
        self.metric, self.recipe = metric, recipe
        if not RECIPE.fullmatch(recipe):
            raise InvalidSetting(
                f"There are no codes '{recipe}': write PQ64 or PQ64x4, with PCA128 or OPQ64 and a comma before it or "
                f"not and '{REFINE_KEYS}' behind it or not, or '{EXACT}'."
            )
        if metric == "ip" and recipe.startswith("PCA"):
            raise InvalidSetting(f"PCA in '{recipe}' moves the origin, so inner products are lost: use l2 or cosine.")
        kind = faiss.METRIC_INNER_PRODUCT if metric == "ip" else faiss.METRIC_L2
        try:
            self.index = faiss.index_factory(dimension, recipe.removesuffix("fs"), kind)
        except RuntimeError as error:
            raise InvalidSetting(f"Keys of dimension {dimension} cannot be divided into codes '{recipe}'.") from error

    @property
    def quantized(self) -> Any:
        """faiss's own index of codes, without keys and behind the transform."""
        return next(layer for layer in layers(self.index) if isinstance(layer, faiss.IndexPQ))

    @property
    def transforms(self) -> list[Any]:
        """faiss's linear transforms before it."""
        return transforms(self.index)

    @property
    def bytes(self) -> int:
        """Of a code."""
        return int(self.quantized.code_size)

    def train(self, sample: Tensor) -> None:
        """Learn from keys, (n, dimension) float32."""
        least = least_sample(self.index)
        if len(sample) < least:
            raise InvalidSetting(
                f"Codes '{self.recipe}' need at least {least} keys, not {len(sample)}: choose '{EXACT}'."
            )
        train(self.index, self._of_unit_length(sample))

    def encode(self, keys: Tensor) -> NDArray[np.uint8]:
        """The codes, (n, bytes), of keys, (n, dimension) float32, computed where the keys are."""
        keys = self._of_unit_length(keys)
        if keys.device.type == "cpu":
            codes: NDArray[np.uint8] = self.index.sa_encode(np.ascontiguousarray(keys.numpy()))
            return codes
        return self.encode_in_torch(keys)

    def encode_in_torch(self, keys: Tensor) -> NDArray[np.uint8]:
        """The same by torch."""
        numbers = self._quantizer(keys.device).encode(self._transformed(keys))
        codes: NDArray[np.uint8] = packed_codes(numbers, self.quantized.pq.nbits).cpu().numpy()
        return codes

    def decode(self, codes: Tensor) -> Tensor:
        """The vectors that codes, (n, bytes), stand for, (n, transformed dimension); compare with `transform`."""
        pq = self.quantized.pq
        if pq.nbits == 4:
            codes = torch.stack([codes & 15, codes >> 4], dim=2).flatten(1)[:, : pq.M]
        return self._quantizer(codes.device).decode(codes)

    def transform(self, queries: Tensor) -> Tensor:
        """Queries, (n, dimension), in the space of `decode`, (n, transformed dimension)."""
        return self._transformed(self._of_unit_length(queries))

    def save(self, path: Path) -> None:
        """Write what was learned."""
        partial = partial_of(path)
        # faiss's own files do not tell when the disk is full at the very end.
        with disk_errors(path), partial.open("wb") as file:
            faiss.write_index(self.index, faiss.PyCallbackIOWriter(file.write))
        publish(partial, path)

    def load(self, path: Path) -> None:
        """Read what `save` wrote."""
        try:
            index = faiss.read_index(str(path))
        except RuntimeError as error:
            raise DamagedFile(
                f"{path} is missing or damaged: prepare the datastore again (--sentence-search)."
            ) from error
        if (index.d, index.sa_code_size()) != (self.index.d, self.index.sa_code_size()):
            raise DamagedFile(
                f"{path} is not of codes '{self.recipe}': prepare the datastore again (--sentence-search)."
            )
        self.index = index

    def _of_unit_length(self, vectors: Tensor) -> Tensor:
        return torch.nn.functional.normalize(vectors, dim=1) if self.metric == "cosine" else vectors

    def _transformed(self, vectors: Tensor) -> Tensor:
        for transform in self.transforms:
            vectors = apply_transform(transform, vectors)
        return vectors

    def _quantizer(self, device: torch.device) -> ProductQuantizer:
        pq = self.quantized.pq
        return ProductQuantizer(
            torch.from_numpy(faiss.vector_to_array(pq.centroids)).view(pq.M, pq.ksub, pq.dsub).to(device)
        )
