from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from knn_seq.combine.base import COMBINERS, Combination, CombinerInputs
from knn_seq.combine.trained import (
    USUAL_TEMPERATURE,
    NetworkShape,
    TrainedCombiner,
    masked_softmax,
    normalised,
    one_hidden_layer,
)
from knn_seq.errors import KnnSeqError, NotFound
from knn_seq.index import Neighbours
from knn_seq.storage import DatastoreFolder

RETRIEVAL_DROPOUT = 0.5  # of the batches
KEYS_AT_A_TIME = 1 << 15


@COMBINERS.register("kster")
class KsterCombiner(TrainedCombiner):
    """KSTER (Jiang et al. 2021): a bandwidth and λ for each row, learned from its query and its neighbours' keys.

    p_kNN(y) ∝ Σ 1[y = v_i]·exp(−√d_i/h), the paper's Laplacian kernel, with the bandwidth h from the query and the mean
    of the keys: log h = w₁·[q; k̄] + b₁; and λ from the query and the kernel's mean of the keys:
    λ = sigmoid(w₃·ReLU(W₂·[q; k̃] + b₂) + b₃).  Queries and keys are normalised before, so that one learning rate suits
    all models.

    The keys are read from the datastore at every step, so it takes one that has them.
    """

    network: KsterNetwork
    _keys: NDArray[Any] | None = None

    def _network(self, shape: NetworkShape) -> KsterNetwork:
        return KsterNetwork(shape.dimension)

    def attach(self, store: Any) -> None:
        """Open the keys; a translation memory, or a datastore without them, is refused."""
        if not isinstance(store, DatastoreFolder):
            raise KnnSeqError(
                "The combiner 'kster' reads the neighbours' keys, which a translation memory does not store: "
                "choose another combiner, or build a datastore."
            )
        try:
            self._keys = store.keys
        except NotFound as error:
            raise KnnSeqError(
                f"The combiner 'kster' reads the neighbours' keys, and those of {store.path} are missing: "
                "choose another combiner."
            ) from error

    def renewed(self, store: Any) -> KsterCombiner:
        """See `Combiner.renewed`."""
        later = copy.copy(self)
        later.attach(store)
        return later

    def _forward(self, inputs: CombinerInputs) -> Combination:
        # All keys of many rows at once would fill the memory.
        rows = max(KEYS_AT_A_TIME // inputs.neighbours.ids.shape[1], 1)
        parts = [inputs.rows(slice(start, start + rows)) for start in range(0, len(inputs.queries), rows)]
        made = [self._of_rows(part) for part in parts or [inputs]]
        return Combination(*(torch.cat(each) for each in zip(*made, strict=True)))

    def _of_rows(self, inputs: CombinerInputs) -> tuple[Tensor, Tensor]:
        neighbours = inputs.neighbours
        queries, keys = inputs.queries, self._read_keys(neighbours)
        found = neighbours.found.float()
        mean = _weighted_sum(found / found.sum(dim=1, keepdim=True).clamp(min=1.0), keys)
        bandwidths = self.network.bandwidth(queries, mean)
        scores = -self.distances(neighbours).sqrt() / bandwidths.unsqueeze(1)
        probabilities = masked_softmax(scores, neighbours)
        return self.network.weight(queries, _weighted_sum(probabilities, keys)), probabilities

    def _read_keys(self, neighbours: Neighbours) -> Tensor:
        """The key of each neighbour, (rows, k, dimension); any where there is none."""
        if self._keys is None:
            raise KnnSeqError("The combiner 'kster' has no keys to read: attach it to a datastore.")
        ids = neighbours.ids.clamp(min=0)
        wanted, places = torch.unique(ids, return_inverse=True)  # sorted: the file is read in one direction
        keys = torch.from_numpy(np.asarray(self._keys[wanted.cpu().numpy()]))
        return keys.to(ids.device).float()[places]

    def perturbed(
        self,
        inputs: CombinerInputs,
        targets: Tensor,
        target_log_probs: Tensor,
        progress: float,
        generator: torch.Generator,
    ) -> CombinerInputs:
        """Retrieval dropout: without the nearest neighbour.

        The paper drops it always, as there each training sentence finds itself.  Here most are predicted from all other
        sentences already, so it is dropped from some batches only.
        """
        neighbours = inputs.neighbours
        k = neighbours.ids.shape[1]
        if k == 1 or torch.rand((), generator=generator).item() >= RETRIEVAL_DROPOUT:
            return inputs
        nearest = torch.zeros_like(neighbours.found)
        nearest[:, 0] = True
        others = replace(
            inputs, neighbours=neighbours.without(nearest), value_log_probs=inputs.value_log_probs.roll(-1, 1)
        )
        return others.nearest(k - 1)


class KsterNetwork(nn.Module):
    """The two networks of `KsterCombiner`.

    Args:
        dimension: Of queries and keys.
    """

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.log_bandwidth = nn.Linear(2 * dimension, 1)
        self.mixing = one_hidden_layer(2 * dimension, dimension, 1)
        nn.init.zeros_(self.log_bandwidth.weight)
        nn.init.zeros_(self.log_bandwidth.bias)

    def bandwidth(self, queries: Tensor, keys: Tensor) -> Tensor:
        """h, (rows,), in units of a usual distance's root, from queries and mean keys, (rows, dimension)."""
        log_bandwidths: Tensor = self.log_bandwidth(_both(queries, keys))
        return USUAL_TEMPERATURE * log_bandwidths.squeeze(1).exp()

    def weight(self, queries: Tensor, keys: Tensor) -> Tensor:
        """λ, (rows,), from queries and weighted keys, (rows, dimension)."""
        mixing: Tensor = self.mixing(_both(queries, keys))
        return mixing.squeeze(1).sigmoid()


def _both(queries: Tensor, keys: Tensor) -> Tensor:
    return torch.cat((normalised(queries), normalised(keys)), dim=1)


def _weighted_sum(weights: Tensor, keys: Tensor) -> Tensor:
    """(rows, dimension) from weights, (rows, k), and keys, (rows, k, dimension)."""
    return torch.bmm(weights.unsqueeze(1), keys).squeeze(1)
