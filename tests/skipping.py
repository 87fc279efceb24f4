"""A datastore that skips about half of its searches, and the rule it does so by, written out."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file

from knn_seq import Datastore
from knn_seq.combine.trained import trained_combiner
from knn_seq.decoding import KnnDecoder
from knn_seq.decoding.skip import SkipNetwork
from knn_seq.index import Neighbours
from knn_seq.likelihood import Reference, predict
from knn_seq.models import Model, Source
from knn_seq.settings import SearchSettings
from knn_seq.train.skip import decided


def skip_path(store: Datastore, name: str = "full/learned") -> Path:
    """The file of the network that was trained with a combiner."""
    return store.combiners_path / store.manifest.combiners[name].skip_file


def skip_half(store: Datastore, model: Model, sentences: int = 40) -> None:
    """Let the trained network skip half of the datastore's own tokens, for which tiny models give it no reason."""
    pairs = store.token_pairs(list(range(sentences)), model.tokenizer)
    references = [Reference(Source(store.texts[n][0], pair.source), pair.target, n) for n, pair in enumerate(pairs)]
    settings = SearchSettings(k=trained_combiner(store, SearchSettings(combiner="learned")).k, weight=1.0)
    [made] = predict(KnnDecoder(store, model), references, [settings])
    network, odds = SkipNetwork.load(skip_path(store)), []

    def half(rows: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        odds.append(network(made.choice_log_probs[rows], features))
        return torch.arange(len(rows)) % 2 == 0

    decided(made, network, store, half)
    network.threshold = torch.cat(odds).median()
    network.save(skip_path(store))


class SlowRule:
    """Whether each token of one output is searched for, one after the other: the formula in float64, in plain words.

    Args:
        store: The datastore.
        path: The file of the network; None: the one of the combiner `learned`.
    """

    def __init__(self, store: Datastore, path: Path | None = None) -> None:
        self.weights = {name: value.astype(np.float64) for name, value in load_file(path or skip_path(store)).items()}
        self.store = store
        self.targets = [store.targets[number].tolist() for number in range(len(store.targets))]
        self.proposed: list[tuple[int, int, float, float]] = []  # sentence, position, share, distance
        self.age = 0
        self.first = True

    def needed(self, written: int | None, log_probs: NDArray[np.float64]) -> bool:
        """Whether to search after `written`, given log p_MT of the vocabulary."""
        if self.first:
            self.first = False
            return True
        self.age = min(self.age + 1, 8)
        right = [each for each in self.proposed if self._token(each[0], each[1]) == written]
        self.proposed = [(sentence, position + 1, share, distance) for sentence, position, share, distance in right]
        best, choice = log_probs.max(), int(log_probs.argmax())
        total = sum(each[2] for each in self.proposed)
        agreeing = sum(each[2] for each in self.proposed if self._token(each[0], each[1]) == choice)
        nearest = min((each[3] for each in self.proposed), default=8.0)
        inputs = [
            max(best, -12.0) / 4,
            math.log(1 - math.exp(best) + 1e-4) / 4,
            float(bool(self.proposed)),
            total,
            agreeing,
            total - agreeing,
            agreeing / total if total else 0.0,
            math.log(nearest + 0.01) / 2,
            self.age / 4,
        ]
        hidden = np.maximum(self.weights["hidden.weight"] @ np.array(inputs) + self.weights["hidden.bias"], 0)
        odds = self.weights["last.weight"] @ hidden + self.weights["last.bias"]
        return bool(odds[0] > self.weights["threshold"])

    def found(self, neighbours: Neighbours) -> None:
        """Tell what a search found, (1, k)."""
        offset, scale = self.weights["distances"]
        places = [i for i, entry in enumerate(neighbours.ids[0].tolist()[:8]) if entry >= 0]
        distances = [min(max((neighbours.distances[0, i].item() - offset) / scale, 0.0), 8.0) for i in places]
        shares = [math.exp((distances[0] - distance) / 0.3) for distance in distances]
        if neighbours.counts is not None:
            shares = [share * neighbours.counts[0, i].item() for share, i in zip(shares, places, strict=True)]
        sentences, positions = (part[0].tolist() for part in self.store.locate(neighbours.ids.numpy()))
        self.proposed = [
            (sentences[i], positions[i], share / sum(shares), distance)
            for i, share, distance in zip(places, shares, distances, strict=True)
        ]
        self.age = 0

    def _token(self, sentence: int, position: int) -> int | None:
        target = self.targets[sentence]
        return target[position] if position < len(target) else None
