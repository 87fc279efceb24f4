"""What all combiners with weights have in common: their network, and the file that keeps it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from knn_seq.combine.base import COMBINERS, Combination, Combiner, CombinerInputs
from knn_seq.errors import DamagedFile, InvalidSetting, KnnSeqError
from knn_seq.index import Neighbours
from knn_seq.settings import SearchSettings
from knn_seq.storage import CombinerInfo, DatastoreFolder
from knn_seq.storage.weights import load_weights, save_weights

FARTHEST = 8.0  # times the usual distance: what is farther, and what is missing, is equally far
LEAST_LOG_PROB = -12.0  # tokens that the model holds less likely are all equally unlikely
USUAL_TEMPERATURE = 0.3  # of the usual distance, where training begins
COMPARED = 64  # values of a row that are compared with each other; more are sorted

Trained = TypeVar("Trained", bound="TrainedCombiner")


@dataclass(frozen=True)
class NetworkShape:
    """What a combiner's network is made for."""

    k: int  # the most neighbours
    dimension: int  # of queries
    offset: float = 0.0  # from which distances are measured: inner products have negative ones
    scale: float = 1.0  # a usual distance, in which they are measured

    @classmethod
    def fitting(cls, neighbours: Neighbours, dimension: int) -> NetworkShape:
        """The shape for neighbours such as these."""
        found = neighbours.distances[neighbours.found]
        if not len(found):
            raise KnnSeqError("There are no neighbours to train a combiner with.")
        offset = min(found.quantile(0.001).item() if len(found) < 1 << 24 else found.min().item(), 0.0)
        scale = max((found - offset).median().item(), 1e-6)
        return cls(neighbours.distances.shape[1], dimension, offset, scale)


class TrainedCombiner(Combiner):
    """A combiner whose network was trained: λ and p_kNN come from it, not from a temperature.

    Args:
        shape: What the network is made for.
        options: See `Combiner`.
    """

    largest_temperature = None

    def __init__(self, shape: NetworkShape, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(options)
        self.shape, self.network = shape, self._network(shape)
        self.parameters = list(self.network.parameters())  # which takes as long to find as a step may take

    @property
    def largest_k(self) -> int:
        """See `Combiner.largest_k`."""
        return self.shape.k

    @abstractmethod
    def _network(self, shape: NetworkShape) -> nn.Module:
        """A network with weights to begin with."""

    @classmethod
    def open(cls, store: Any, model: Any, settings: SearchSettings) -> Combiner:
        """The one that was trained for the datastore, with this retriever and index."""
        if not isinstance(store, DatastoreFolder):
            raise KnnSeqError(f"The combiner '{settings.combiner}' was not trained for the translation memory.")
        return store.open_named(lambda: cls._open(store, settings))

    @classmethod
    def _open(cls: type[Trained], store: DatastoreFolder, settings: SearchSettings) -> Trained:
        info = trained_combiner(store, settings)
        combiner = cls.load(store.combiners_path / info.file, settings.combiner_options)
        if combiner.shape.k != info.k:
            raise DamagedFile(
                f"{store.combiners_path / info.file} is for {combiner.shape.k} neighbours, where the datastore has a "
                f"combiner for {info.k}: train it again (`knn-seq train {store.path} --combiner {settings.combiner}`)."
            )
        combiner.attach(store)
        return combiner

    def begin_with(self, fixed: SearchSettings) -> None:
        """Let training begin where `fixed` is best; most combiners begin where they always do.

        Args:
            fixed: k, temperature and weight.
        """

    def attach(self, store: Any) -> None:
        """Open what it reads of the entries besides their values; most combiners read nothing.

        Args:
            store: What is searched, a `DatastoreFolder` or a `TranslationMemory`.
        """

    def save(self, path: Path) -> None:
        """Write weights and shape to a safetensors file."""
        save_weights(path, self.network.state_dict(), {"combiner": self._name(), "shape": asdict(self.shape)})

    @classmethod
    def load(cls: type[Trained], path: Path, options: Mapping[str, Any] | None = None) -> Trained:
        """Read what `save` wrote."""
        weights, description = load_weights(path)
        try:
            if description.get("combiner") != cls._name():
                raise ValueError(f"it names the combiner {description.get('combiner')!r}")
            combiner = cls(NetworkShape(**description["shape"]), options)
            combiner.network.load_state_dict(weights)
        except (TypeError, KeyError, ValueError, RuntimeError) as error:
            reason = str(error).partition("\n")[0].removesuffix(":")
            raise DamagedFile(
                f"{path} does not hold the weights of the combiner '{cls._name()}' ({reason}): train it again."
            ) from error
        combiner.network.eval().requires_grad_(False)
        return combiner

    @classmethod
    def _name(cls) -> str:
        return COMBINERS.name_of(cls)

    def _combine(self, inputs: CombinerInputs, settings: SearchSettings) -> Combination:
        k = inputs.neighbours.values.shape[1]
        if k > self.shape.k:
            raise InvalidSetting(
                f"The combiner '{settings.combiner}' was trained for at most {self.shape.k} neighbours, "
                f"not for a k of {k}."
            )
        device = inputs.neighbours.distances.device
        if self._device != device:
            self.network.to(device)
        return self._forward(inputs)

    @property
    def _device(self) -> torch.device:
        return self.parameters[0].device

    @abstractmethod
    def _forward(self, inputs: CombinerInputs) -> Combination:
        """λ and p_kNN of each row; rows without neighbours may hold anything."""

    def perturbed(
        self,
        inputs: CombinerInputs,
        targets: Tensor,
        target_log_probs: Tensor,
        progress: float,
        generator: torch.Generator,
    ) -> CombinerInputs:
        """What a combiner that is trained with noise sees of its examples.

        Args:
            inputs: The examples, (rows, …).
            targets: The token of the reference, (rows,).
            target_log_probs: log p_MT of these, (rows,).
            progress: How much of the training is done, from 0 to 1.
            generator: Of the noise.
        """
        return inputs

    def features(self, inputs: CombinerInputs) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Distances, distinct values, log p_MT of the values, (rows, k) each, and the largest log p_MT, (rows, n)."""
        neighbours = inputs.neighbours
        return (
            self.distances(neighbours),
            distinct_values(neighbours),
            inputs.value_log_probs.masked_fill(~neighbours.found, LEAST_LOG_PROB).clamp(min=LEAST_LOG_PROB),
            inputs.best_log_probs.clamp(min=LEAST_LOG_PROB),
        )

    def distances(self, neighbours: Neighbours) -> Tensor:
        """The distances of each row in units of a usual one, from 0 to `FARTHEST`, (rows, k)."""
        return ((neighbours.distances - self.shape.offset) / self.shape.scale).clamp(0.0, FARTHEST)


def trained_combiner(store: DatastoreFolder, settings: SearchSettings) -> CombinerInfo:
    """The description of the combiner that was trained for these settings, or else for full search.

    One that was trained with distances of another metric knows nothing of these.
    """
    trained, metric = store.manifest.combiners, store.manifest.searched_metric(settings.retriever, settings.index)
    own = f"{settings.retriever}/{settings.combiner}"
    for name in (f"{own}/{settings.index}", own, f"full/{settings.combiner}"):
        if name in trained and trained[name].metric == metric:
            return trained[name]
    parts = [f"--combiner {settings.combiner}"]
    parts += [f"--retriever {settings.retriever}"] if settings.retriever != SearchSettings.retriever else []
    parts += [f"--index {settings.index}"] if settings.index else []
    raise KnnSeqError(
        f"{store.path} has no trained combiner '{settings.combiner}' for distances of the metric {metric}: "
        f"run `knn-seq train {store.path} {' '.join(parts)}`."
    )


def masked_softmax(scores: Tensor, neighbours: Neighbours) -> Tensor:
    """The softmax of each row over the neighbours that were found, those that stand for several counted so.

    Rows without neighbours are 0 throughout: no number would be none in the gradients of all other rows, too.
    """
    if neighbours.counts is not None:
        scores = scores + neighbours.counts.log()
    if neighbours.complete:
        return torch.softmax(scores, dim=1)
    missing = ~neighbours.found
    return torch.softmax(scores.masked_fill(missing, -torch.inf), dim=1).masked_fill(missing, 0.0)


def one_hidden_layer(inputs: int, hidden: int, outputs: int, activation: nn.Module | None = None) -> nn.Sequential:
    """A network that makes the same of everything, to begin with."""
    last = nn.Linear(hidden, outputs)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(nn.Linear(inputs, hidden), activation or nn.ReLU(), last)


def normalised(vectors: Tensor) -> Tensor:
    """Queries or keys with mean 0 and variance 1, so that one learning rate suits all models, (rows, dimension)."""
    return functional.layer_norm(vectors.float(), vectors.shape[1:])


def padded(values: Tensor, k: int, missing: float | None = None) -> Tensor:
    """With k columns; None: further ones are like the last."""
    more = k - values.shape[1]
    if not more:
        return values
    if missing is None:
        return torch.cat((values, values[:, -1:].expand(-1, more)), dim=1)
    return functional.pad(values, (0, more), value=missing)


def distinct_values(neighbours: Neighbours) -> Tensor:
    """How many different values there are among the first 1, 2 … k neighbours of each row, (rows, k) int64."""
    values = neighbours.values
    if values.shape[1] > COMPARED:
        ordered, order = values.sort(dim=1, stable=True)
        begins = torch.ones_like(ordered, dtype=torch.bool)
        begins[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
        first = torch.empty_like(begins).scatter_(1, order, begins)
        return (first & neighbours.found).cumsum(dim=1)
    earlier = torch.ones(values.shape[1], values.shape[1], dtype=torch.bool, device=values.device).tril(-1)
    repeated = ((values.unsqueeze(2) == values.unsqueeze(1)) & earlier).any(dim=2)
    return (~repeated & neighbours.found).cumsum(dim=1)
