"""The last step: defaults for k, temperature and weight that fit what is searched.

Sentences of it are held out in turn: each of their tokens is predicted from all other sentences, and the settings under
which these predictions are most likely are the best guess for new sentences.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knn_seq.combine import COMBINERS
from knn_seq.models import Model, Source, TokenPair
from knn_seq.models.batching import length_batches
from knn_seq.neighbours import Neighbours
from knn_seq.progress import Progress
from knn_seq.retrieve import RETRIEVERS, Retriever
from knn_seq.settings import BuildSettings, SearchSettings
from knn_seq.storage import DatastoreFolder

K_CHOICES = (4, 8, 16, 32, 64)
WEIGHT_CHOICES = tuple(round(0.05 * step, 2) for step in range(2, 19))
SMALLEST_TEMPERATURE = 2.0**-5  # times the median distance; each choice is the root of 2 times the one before
OWN_SENTENCE_MARGIN = 24  # further neighbours asked for, since those of a token's own sentence are dropped
ENOUGH = 0.005  # a smaller k, which is faster, is taken if it costs less than this log-likelihood per token
SCORE_TOKENS = 768  # a batch's logits must fit into memory, whatever the vocabulary

Locate = Callable[[NDArray[np.int64]], tuple[NDArray[np.int64], NDArray[np.int64]]]
"""The sentence of each entry, and the entry's place there; see `DatastoreFolder.locate`."""


class HeldOut(NamedTuple):
    """A sentence pair of what is searched, to be predicted from the others."""

    sentence: int  # its number
    source: Source
    target: Sequence[int]  # the end-of-sentence token last


def calibrate(
    folder: DatastoreFolder,
    model: Model,
    settings: BuildSettings,
    quiet: bool,
    search: SearchSettings | None = None,
) -> dict[str, Any]:
    """A datastore's defaults, with the distances they were measured at.

    Args:
        folder: The datastore.
        model: The model of its keys.
        settings: How many sentences are held out.
        quiet: Show no progress.
        search: The retriever and the combiner that the defaults are for, and how it searches.
    """
    search = search or SearchSettings()
    defaults = {name: getattr(search, name) for name in ("retriever", "combiner", "k", "temperature", "weight")}
    if len(folder.values) < 2 or not settings.calibration_sentences:
        return defaults
    chosen = np.random.default_rng(0).permutation(len(folder.values))[: settings.calibration_sentences]
    sample = [
        HeldOut(row, Source(folder.texts[row][0], folder.sources[row].tolist()), folder.values[row].tolist())
        for row in chosen.tolist()
    ]
    retriever = RETRIEVERS.get(search.retriever).open(folder, search, model)
    return defaults | most_likely(retriever, folder.locate, model, sample, search.combiner, quiet)


def most_likely(
    retriever: Retriever,
    locate: Locate,
    model: Model,
    sample: Sequence[HeldOut],
    combiner: str,
    quiet: bool = False,
    k_choices: Sequence[int] = K_CHOICES,
    floor: float = 0.0,
) -> dict[str, Any]:
    """k, temperature and weight under which the tokens of a sample are most likely; empty if none has neighbours.

    Args:
        retriever: Finds neighbours, also in the sentence itself; those are dropped.
        locate: The sentence of each entry.
        model: Makes the queries.
        sample: The sentences.
        combiner: The combiner's name.
        quiet: Show no progress.
        k_choices: What k may be.
        floor: Tokens less likely than this all count as if they were this likely: a search does not write them anyway,
            and to lift them a little costs certainty where neighbours are right.
    """
    parts = list(_predictions(retriever, locate, model, sample, max(k_choices), quiet))
    if not parts:
        return {}
    columns = zip(*((p.distances, p.values, p.ids, targets, log_probs) for p, targets, log_probs in parts), strict=True)
    distances, values, ids, targets, log_probs = map(torch.cat, columns)
    neighbours = Neighbours(distances, values, ids)
    found = neighbours.found.any(dim=1)
    if not found.any():
        return {}
    neighbours, targets, log_probs = neighbours.rows(found), targets[found], log_probs[found]
    median = neighbours.distances[neighbours.found].median().abs().clamp(min=1e-3).item()
    best = _best_settings(neighbours, targets, log_probs, median, combiner, k_choices, floor)
    return best | {"median_distance": round(median, 4)}


def _predictions(
    retriever: Retriever, locate: Locate, model: Model, sample: Sequence[HeldOut], k: int, quiet: bool
) -> Iterator[tuple[Neighbours, Tensor, Tensor]]:
    """For each token of some sentences, its neighbours in other sentences, the right token and log p_MT of it."""
    source_lengths = np.array([len(one.source.tokens) for one in sample], np.int64)
    target_lengths = np.array([len(one.target) for one in sample], np.int64)
    with Progress("defaults", len(sample), "sentences", quiet=quiet) as progress:
        for batch in length_batches(source_lengths, target_lengths, SCORE_TOKENS):
            chosen = [sample[i] for i in batch]
            queries, log_probs = model.score([TokenPair(one.source.tokens, one.target) for one in chosen])
            rows = torch.arange(len(chosen)).repeat_interleave(torch.from_numpy(target_lengths[batch]))
            prepared = retriever.prepare([one.source for one in chosen])
            found = retriever.retrieve(queries.float(), rows, k + OWN_SENTENCE_MARGIN, prepared)
            found = Neighbours(found.distances.cpu(), found.values.cpu(), found.ids.cpu())
            own = np.array([one.sentence for one in chosen])[rows.numpy()]
            same = torch.from_numpy(locate(found.ids.numpy())[0] == own[:, None])
            targets = torch.tensor([token for one in chosen for token in one.target])
            yield _without(found, same).nearest(k), targets, log_probs.cpu()
            progress.update(len(batch))


def _without(neighbours: Neighbours, dropped: Tensor) -> Neighbours:
    """The neighbours that are not dropped, still nearest first; their places at the end become empty."""
    order = dropped.to(torch.int8).argsort(dim=1, stable=True)
    gone = dropped.gather(1, order)
    return Neighbours(
        neighbours.distances.gather(1, order).masked_fill(gone, torch.inf),
        neighbours.values.gather(1, order).masked_fill(gone, 0),
        neighbours.ids.gather(1, order).masked_fill(gone, -1),
    )


def _best_settings(
    neighbours: Neighbours,
    targets: Tensor,
    log_probs: Tensor,
    median: float,
    name: str,
    k_choices: Sequence[int],
    floor: float,
) -> dict[str, Any]:
    kind = COMBINERS.get(name)
    model = log_probs.double().exp()
    results = []
    for k in k_choices:
        nearest = neighbours.nearest(k)
        right = nearest.values == targets.unsqueeze(1)
        for temperature in _temperatures(median, kind.largest_temperature):
            search = SearchSettings(combiner=name, k=k, temperature=temperature)
            share = (kind(search).votes(nearest).double() * right).sum(dim=1)
            combiners = [kind(replace(search, weight=weight)) for weight in WEIGHT_CHOICES]
            weights = torch.stack([combiner.mixture_weights(nearest) for combiner in combiners]).double()
            mixture = (weights * share + (1 - weights) * model).clamp(min=floor)  # (weights, tokens)
            likelihood = torch.log(mixture).mean(dim=1)
            value, place = likelihood.max(dim=0)
            results.append((value.item(), k, temperature, WEIGHT_CHOICES[int(place)]))
    enough = max(results)[0] - ENOUGH
    k = min(k for value, k, _, _ in results if value >= enough)
    _, _, temperature, weight = max(result for result in results if result[1] == k)
    return {"k": k, "temperature": temperature, "weight": weight}


def _temperatures(median: float, largest: float) -> list[float]:
    steps = math.floor(2 * math.log2(largest / SMALLEST_TEMPERATURE)) + 1
    return [float(f"{SMALLEST_TEMPERATURE * 2.0 ** (step / 2) * median:.3g}") for step in range(steps)]
