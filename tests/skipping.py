"""A datastore that skips about half of its searches, and the rule it does so by, written out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file

from knn_seq import Datastore
from knn_seq.decoding.skip import SkipNetwork
from knn_seq.models import Model


def skip_path(store: Datastore, name: str = "full/learned") -> Path:
    """The file of the network that was trained with a combiner."""
    return store.combiners_path / store.manifest.combiners[name].skip_file


def skip_half(store: Datastore, model: Model, sentences: int = 40) -> None:
    """Let the trained network skip half of the datastore's own tokens, for which tiny models give it no reason."""
    pairs = store.token_pairs(list(range(sentences)), model.tokenizer)
    keys, log_probs = model.score(pairs)
    network = SkipNetwork.load(skip_path(store))
    network.threshold = network(keys, log_probs.amax(dim=1)).median()
    network.save(skip_path(store))


def slow_rule(path: Path) -> Callable[[NDArray[np.float64], float], bool]:
    """Whether a query, (dimension,), is searched, given log p_MT of the model's choice: the formula in float64."""
    weights = {name: value.astype(np.float64) for name, value in load_file(path).items()}

    def needed(query: NDArray[np.float64], best_log_prob: float) -> bool:
        certainty = np.array([max(best_log_prob, -12.0), np.log(1 - np.exp(best_log_prob) + 1e-4)]) / 4
        features = np.concatenate([(query - weights["mean"]) / weights["deviation"], certainty])
        hidden = np.maximum(weights["hidden.weight"] @ features + weights["hidden.bias"], 0)
        odds = weights["last.weight"] @ hidden + weights["last.bias"]
        return bool(odds[0] > weights["threshold"])

    return needed


def slow_rows(path: Path, queries: torch.Tensor, log_probs: torch.Tensor) -> list[bool]:
    """The same for many rows, (rows, dimension) and (rows, vocabulary)."""
    needed = slow_rule(path)
    best = log_probs.double().amax(dim=1).tolist()
    return [needed(query, each) for query, each in zip(queries.double().numpy(), best, strict=True)]
