"""The last step: defaults for k, temperature and weight that fit this datastore.

Sentences of the datastore are held out in turn: each of their tokens is predicted from all other sentences, and the
settings under which these predictions are most likely become the datastore's own.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from knn_seq.build.batches import plan_batches
from knn_seq.combine import COMBINERS
from knn_seq.models import Model, TokenPair
from knn_seq.neighbours import Neighbours
from knn_seq.progress import Progress
from knn_seq.retrieve.full import FullRetriever
from knn_seq.settings import BuildSettings, SearchSettings
from knn_seq.storage import DatastoreFolder, Ragged

K_CHOICES = (4, 8, 16, 32, 64)
WEIGHT_CHOICES = tuple(round(0.05 * step, 2) for step in range(2, 19))
TEMPERATURE_FACTORS = tuple(2.0 ** (step / 2) for step in range(-10, 5))  # of the median distance
OWN_SENTENCE_MARGIN = 24  # further neighbours asked for, since those of a token's own sentence are dropped
ENOUGH = 0.005  # a smaller k, which is faster, is taken if it costs less than this log-likelihood per token
SCORE_TOKENS = 768  # a batch's logits must fit into memory, whatever the vocabulary


def calibrate(folder: DatastoreFolder, model: Model, settings: BuildSettings, quiet: bool) -> dict[str, Any]:
    """The datastore's defaults, with the distances they were measured at."""
    fallback = SearchSettings()
    names = ("retriever", "combiner", "k", "temperature", "weight")
    defaults = {name: value for name, value in asdict(fallback).items() if name in names}
    if len(folder.values) < 2 or not settings.calibration_sentences:
        return defaults
    neighbours, targets, log_probs = _held_out(folder, model, settings, quiet)
    found = neighbours.found.any(dim=1)
    if not found.any():
        return defaults
    neighbours, targets, log_probs = neighbours.rows(found), targets[found], log_probs[found]
    median = neighbours.distances[neighbours.found].median().abs().clamp(min=1e-3).item()
    best = _most_likely(neighbours, targets, log_probs, median)
    return defaults | best | {"median_distance": round(median, 4)}


def _held_out(
    folder: DatastoreFolder, model: Model, settings: BuildSettings, quiet: bool
) -> tuple[Neighbours, Tensor, Tensor]:
    """Neighbours in other sentences, the right token and log p_MT of it, for each token of a sample of sentences."""
    retriever = FullRetriever.open(folder, SearchSettings())
    k = max(K_CHOICES) + OWN_SENTENCE_MARGIN
    sample = np.random.default_rng(0).permutation(len(folder.values))[: settings.calibration_sentences]
    sources, values = _part(folder.sources, sample), _part(folder.values, sample)
    parts: list[tuple[Neighbours, Tensor, Tensor]] = []
    with Progress("defaults", len(sample), "sentences", quiet=quiet) as progress:
        for batch in plan_batches(sources, values, SCORE_TOKENS):
            pairs = [TokenPair(sources[i].tolist(), values[i].tolist()) for i in batch]
            keys, log_probs = model.score(pairs)
            lengths = torch.tensor([len(pair.target) for pair in pairs])
            own = torch.from_numpy(sample[batch]).repeat_interleave(lengths).numpy()
            found = retriever.retrieve(keys.float().cpu(), torch.zeros(len(keys)), k)
            same = torch.from_numpy(folder.values.row_of(found.ids.numpy()) == own[:, None])
            targets = torch.tensor([token for pair in pairs for token in pair.target])
            parts.append((_without(found, same).nearest(max(K_CHOICES)), targets, log_probs.cpu()))
            progress.update(len(batch))
    neighbours = Neighbours(*(torch.cat([getattr(part[0], name) for part in parts]) for name in _FIELDS))
    return neighbours, torch.cat([part[1] for part in parts]), torch.cat([part[2] for part in parts])


_FIELDS = ("distances", "values", "ids")


def _part(sequences: Ragged, rows: np.ndarray[Any, Any]) -> Ragged:
    chosen = [sequences[row] for row in rows]
    return Ragged(np.concatenate(chosen), np.cumsum([0, *map(len, chosen)]))


def _without(neighbours: Neighbours, dropped: Tensor) -> Neighbours:
    """The neighbours that are not dropped, still nearest first; their places at the end become empty."""
    order = dropped.to(torch.int8).argsort(dim=1, stable=True)
    gone = dropped.gather(1, order)
    return Neighbours(
        neighbours.distances.gather(1, order).masked_fill(gone, torch.inf),
        neighbours.values.gather(1, order).masked_fill(gone, 0),
        neighbours.ids.gather(1, order).masked_fill(gone, -1),
    )


def _most_likely(neighbours: Neighbours, targets: Tensor, log_probs: Tensor, median: float) -> dict[str, Any]:
    weights = torch.tensor(WEIGHT_CHOICES, dtype=torch.float64).unsqueeze(1)
    model = log_probs.double().exp()
    results = []
    for k in K_CHOICES:
        nearest = neighbours.nearest(k)
        right = nearest.values == targets.unsqueeze(1)
        for factor in TEMPERATURE_FACTORS:
            temperature = float(f"{factor * median:.3g}")
            votes = COMBINERS.get("fixed")(SearchSettings(k=k, temperature=temperature)).votes(nearest)
            share = (votes.double() * right).sum(dim=1)
            likelihood = torch.log(weights * share + (1 - weights) * model).mean(dim=1)  # (weights,)
            value, place = likelihood.max(dim=0)
            results.append((value.item(), k, temperature, WEIGHT_CHOICES[int(place)]))
    enough = max(results)[0] - ENOUGH
    k = min(k for value, k, _, _ in results if value >= enough)
    _, _, temperature, weight = max(result for result in results if result[1] == k)
    return {"k": k, "temperature": temperature, "weight": weight}
