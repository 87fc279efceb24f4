"""Which tokens need no search: a network that knows before it whether neighbours could change anything."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from knn_seq.errors import DamagedFile, KnnSeqError
from knn_seq.settings import SearchSettings
from knn_seq.storage import CombinerInfo, DatastoreFolder
from knn_seq.storage.translation_memory import TranslationMemory
from knn_seq.storage.weights import load_weights, save_weights

HIDDEN, DROPOUT = 64, 0.3
LEAST_LOG_PROB = -12.0
NOT_TRAINED = "Nothing was trained that could say which searches to skip"
LEAST_DOUBT = 1e-4  # of the model, that its logarithm tells apart


class SkipNetwork(nn.Module):
    """One hidden layer over the query and the model's certainty.

    What it says of a row is the log-odds that the model's choice is wrong and neighbours hold the right token: the idea
    of kNN-MT-DR.  Below its threshold a row is not searched.

    Args:
        dimension: Of queries.
    """

    mean: Tensor
    deviation: Tensor
    threshold: Tensor

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(dimension))
        self.register_buffer("deviation", torch.ones(dimension))
        self.register_buffer("threshold", torch.tensor(-torch.inf))
        self.hidden = nn.Linear(dimension + 2, HIDDEN)
        self.dropout = nn.Dropout(DROPOUT)
        self.last = nn.Linear(HIDDEN, 1)

    def forward(self, queries: Tensor, best_log_probs: Tensor) -> Tensor:
        """The log-odds, (rows,).

        Args:
            queries: (rows, dimension)
            best_log_probs: log p_MT of the model's choice, (rows,).
        """
        doubt = (1 - best_log_probs.exp() + LEAST_DOUBT).log()
        certainty = torch.stack((best_log_probs.clamp(min=LEAST_LOG_PROB), doubt), dim=1) / 4
        features = torch.cat(((queries.float() - self.mean) / self.deviation, certainty), dim=1)
        odds: Tensor = self.last(self.dropout(self.hidden(features).relu())).squeeze(1)
        return odds

    def needed(self, queries: Tensor, best_log_probs: Tensor) -> Tensor:
        """The rows that are worth a search, (rows,) bool."""
        if self.mean.device != queries.device:
            self.to(queries.device)
        odds: Tensor = self(queries, best_log_probs)
        return odds > self.threshold

    def save(self, path: Path) -> None:
        """Write it to a safetensors file."""
        save_weights(path, self.state_dict(), {"dimension": len(self.mean)})

    @classmethod
    def load(cls, path: Path, dimension: int | None = None) -> SkipNetwork:
        """Read what `save` wrote.

        Args:
            path: The file.
            dimension: That of the queries it is asked with; None: any.
        """
        weights, _ = load_weights(path)
        try:
            network = cls(len(weights["mean"]))
            network.load_state_dict(weights)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise DamagedFile(f"{path} holds other weights than those that skip searches: train again.") from error
        if dimension not in (None, len(network.mean)):
            raise DamagedFile(f"{path} is for keys of {len(network.mean)} dimensions, not {dimension}: train again.")
        return network.eval().requires_grad_(False)


def open_skip(store: DatastoreFolder | TranslationMemory, settings: SearchSettings) -> SkipNetwork:
    """The one that was trained for the datastore with these parts, or else with others."""
    if isinstance(store, DatastoreFolder):
        return store.open_named(lambda: _open(store, settings))
    raise KnnSeqError(f"{NOT_TRAINED}: leave --skip out.")


def _open(store: DatastoreFolder, settings: SearchSettings) -> SkipNetwork:
    info = _trained(store, settings)
    if info is None or info.skip_file is None:
        raise KnnSeqError(f"{NOT_TRAINED}: run `knn-seq train {store.path}`.")
    return SkipNetwork.load(store.combiners_path / info.skip_file, store.manifest.keys.dimension)


def _trained(store: DatastoreFolder, settings: SearchSettings) -> CombinerInfo | None:
    trained = {name: info for name, info in store.manifest.combiners.items() if info.skip_file is not None}
    own = f"{settings.retriever}/{settings.combiner}"
    for name in (f"{own}/{settings.index}", own, f"full/{settings.combiner}", "full/learned"):
        if name in trained:
            return trained[name]
    return next(iter(trained.values()), None)
