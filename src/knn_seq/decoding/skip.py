"""Which tokens need no search: a network that knows before it whether neighbours could change anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from knn_seq.decoding.continuations import FEATURES, Continuations
from knn_seq.errors import DamagedFile, KnnSeqError
from knn_seq.index import Neighbours
from knn_seq.settings import SearchSettings
from knn_seq.storage import CombinerInfo, DatastoreFolder
from knn_seq.storage.translation_memory import TranslationMemory
from knn_seq.storage.weights import load_weights, save_weights

HIDDEN = 32
LEAST_LOG_PROB = -12.0
LEAST_DOUBT = 1e-4  # of the model, that its logarithm tells apart
NOT_TRAINED = "Nothing was trained that could say which searches to skip"


class SkipNetwork(nn.Module):
    """One hidden layer over the model's certainty and what neighbours of earlier steps propose.

    What it says of a row is the log-odds that neighbours change the token.  Below its threshold a row is not searched.

    Args:
        offset: From which distances are measured: inner products have negative ones.
        scale: A usual distance.
    """

    distances: Tensor
    threshold: Tensor

    def __init__(self, offset: float = 0.0, scale: float = 1.0) -> None:
        super().__init__()
        self.register_buffer("distances", torch.tensor([offset, scale]))
        self.register_buffer("threshold", torch.tensor(-torch.inf))
        self.hidden = nn.Linear(2 + FEATURES, HIDDEN)
        self.last = nn.Linear(HIDDEN, 1)

    def forward(self, best_log_probs: Tensor, features: Tensor) -> Tensor:
        """The log-odds, (rows,).

        Args:
            best_log_probs: log p_MT of the model's choice, (rows,).
            features: See `Continuations.features`, (rows, features).
        """
        doubt = (1 - best_log_probs.exp() + LEAST_DOUBT).log()
        certainty = torch.stack((best_log_probs.clamp(min=LEAST_LOG_PROB), doubt), dim=1) / 4
        odds: Tensor = self.last(self.hidden(torch.cat((certainty, features), dim=1)).relu()).squeeze(1)
        return odds

    def continuations(self, neighbours: Neighbours, store: DatastoreFolder) -> Continuations:
        """What neighbours that were just found propose."""
        return Continuations.of(neighbours, store, *self.distances.tolist())

    def save(self, path: Path) -> None:
        """Write it to a safetensors file."""
        save_weights(path, self.state_dict(), {"features": FEATURES})

    @classmethod
    def load(cls, path: Path) -> SkipNetwork:
        """Read what `save` wrote."""
        weights, _ = load_weights(path)
        network = cls()
        try:
            network.load_state_dict(weights)
        except (TypeError, ValueError, RuntimeError) as error:
            raise DamagedFile(f"{path} holds other weights than those that skip searches: train again.") from error
        return network.eval().requires_grad_(False)


class Skipping:
    """Decides, one step after the other, which rows of a batch are searched.

    Args:
        network: Says whether neighbours may change a token.
        store: Where they are found.
    """

    def __init__(self, network: SkipNetwork, store: DatastoreFolder) -> None:
        self.network, self.store = network, store
        self._proposed = Continuations.none(0)

    @torch.no_grad()
    def needed(
        self, parents: NDArray[np.int64], written: Tensor, best: Tensor, log_probs_of: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """The rows that are worth a search, (rows,) bool, on the CPU; at their first step all of them are.

        Args:
            parents: The row of the step before that each row continues, (rows,); -1: it begins here.
            written: The token that it was continued with, (rows,).
            best: The largest log p_MT of each row, (rows,).
            log_probs_of: log p_MT of any tokens, (rows, n).
        """
        continued = parents >= 0
        before, self._proposed = self._proposed, Continuations.none(len(best))
        if not continued.any():
            return torch.ones(len(best), dtype=torch.bool)
        after = before.rows(np.maximum(parents, 0)).after(written.cpu().numpy(), self.store)
        self._proposed = self._proposed.renewed(continued, after)
        proposed = torch.from_numpy(self._proposed.tokens).to(best.device)
        choices = (log_probs_of(proposed) == best.unsqueeze(1)).cpu().numpy()
        odds: Tensor = self.network(best.cpu(), torch.from_numpy(self._proposed.features(choices)))
        return (odds > self.network.threshold) | torch.from_numpy(~continued)

    def found(self, searched: Tensor, neighbours: Neighbours) -> None:
        """Learn what this step found.

        Args:
            searched: The rows that were searched, (rows,) bool.
            neighbours: Those of all rows.
        """
        self._proposed = self._proposed.renewed(
            searched.cpu().numpy(), self.network.continuations(neighbours, self.store)
        )


def position_by_position(lengths: Sequence[int]) -> Iterator[tuple[Tensor, NDArray[np.int64]]]:
    """The rows of sentences that lie one after the other, a position of all of them at a time, (rows,) int64.

    Beside them, the place among the rows of the position before that each continues; -1 at the first position.
    """
    starts, every = np.cumsum([0, *lengths])[:-1], np.asarray(lengths, np.int64)
    for position in range(every.max(initial=0)):
        there, before = every > position, every > position - 1
        parents = np.flatnonzero(there[before]) if position else np.full(there.sum(), -1)
        yield torch.from_numpy(starts[there] + position), parents


def open_skip(store: DatastoreFolder | TranslationMemory, settings: SearchSettings) -> SkipNetwork:
    """The one that was trained for the datastore with these parts, or else with others of the same metric."""
    if isinstance(store, DatastoreFolder):
        return store.open_named(lambda: _open(store, settings))
    raise KnnSeqError("A translation memory is searched so fast that nothing is skipped: leave --skip out.")


def _open(store: DatastoreFolder, settings: SearchSettings) -> SkipNetwork:
    info = _trained(store, settings)
    if info is None or info.skip_file is None:
        raise KnnSeqError(f"{NOT_TRAINED}: run `knn-seq train {store.path}`.")
    return SkipNetwork.load(store.combiners_path / info.skip_file)


def _trained(store: DatastoreFolder, settings: SearchSettings) -> CombinerInfo | None:
    metric = store.manifest.searched_metric(settings.retriever, settings.index)
    trained = {
        name: info
        for name, info in store.manifest.combiners.items()
        if info.skip_file is not None and info.metric == metric
    }
    own = f"{settings.retriever}/{settings.combiner}"
    for name in (f"{own}/{settings.index}", own, f"full/{settings.combiner}", "full/learned"):
        if name in trained:
            return trained[name]
    return next(iter(trained.values()), None)
