"""What a combiner learns from: predictions at tokens whose reference is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch

from knn_seq.combine import CombinerInputs
from knn_seq.decoding import KnnDecoder
from knn_seq.index import Neighbours
from knn_seq.index.exact import exact_search
from knn_seq.likelihood import Predictions, Reference, held_out, predict, some_of_text, usual_k
from knn_seq.likelihood.calibrate import K_CHOICES
from knn_seq.models import Model, Source
from knn_seq.models.batching import length_batches
from knn_seq.settings import DecodingSettings, SearchSettings
from knn_seq.storage import DatastoreFolder
from knn_seq.storage.translation_memory import TranslationMemory

HELD_OUT_SHARE = 8  # every eighth sentence decides when training stops
STORED_SHARE = 6  # for every so many sentences that are predicted from all others, one that finds itself ...
FEWEST_STORED = 24  # ... but at least so many
STORED_WEIGHT = 4.0  # of each of their tokens: what is stored must come out as it is, where it looks general as well
# How much all tokens of a kind count, for each token that is predicted from all other sentences.
GENERAL_WEIGHT = 1.5
FAR_WEIGHT = 0.5
FAR_SAMPLES = (64, 1024, 8192)  # keys that a far query finds its neighbours among
GENERAL_BATCH_TOKENS = 2048
BEST_LOG_PROBS = 8  # the most that any combiner looks at


class Part(NamedTuple):
    """Examples of one kind."""

    predictions: Predictions
    weight: float  # of each token


@dataclass(frozen=True)
class Examples:
    """What a combiner is trained on, and what decides when it is good enough."""

    train: list[Part]
    held_out: list[Part]
    general_sentences: int
    store: DatastoreFolder | TranslationMemory  # what was searched
    k_choices: Sequence[int] = K_CHOICES  # numbers of neighbours that are usual for the model, ascending

    @property
    def usable(self) -> bool:
        """Whether anything was found from which a combiner could learn."""
        return bool(self.train) and bool(self.train[0].predictions.neighbours.found.any())

    @property
    def of_text(self) -> bool:
        """Whether a language model read them."""
        return self.k_choices != K_CHOICES

    @property
    def judged(self) -> list[Part]:
        """What says when a combiner is best, and whether it is better than `fixed`.

        Of a text, that is held-out text such as what is stored: there it begins as `fixed`, and must not become worse.
        """
        return self.held_out[:1] if self.of_text else self.held_out

    @property
    def tokens(self) -> int:
        """How many tokens are trained on."""
        return sum(len(part.predictions) for part in self.train)


def own_examples(
    decoder: KnnDecoder, settings: SearchSettings, sentences: int, general: Sequence[str], seed: int
) -> Examples:
    """Examples from what is searched: no dev set is needed.

    Sentences are predicted from all others, as new ones will be; some find themselves, so that what is stored comes
    out as it is; and sentences of other domains have the model's own output as their reference, which neighbours must
    not change.  Without such sentences, far queries are imitated: among few keys all neighbours are far.

    Args:
        decoder: The model, and what it searches.
        settings: Which retriever, and how many neighbours.
        sentences: How many sentences are predicted at most.
        general: Sentences of other domains.
        seed: Of the choice.
    """
    return _examples(decoder, settings, held_out(decoder, sentences, seed), general, seed)


def dev_examples(
    decoder: KnnDecoder,
    settings: SearchSettings,
    references: Sequence[Reference],
    sentences: int,
    general: Sequence[str],
    seed: int,
) -> Examples:
    """A dev set in the place of the sentences that are predicted from all others; the rest as in `own_examples`."""
    if decoder.model.tokenizer.continues_text:
        references = some_of_text(references)
    stored = held_out(decoder, min(sentences, len(references)), seed)
    return _examples(decoder, settings, references, general, seed, stored)


def _examples(
    decoder: KnnDecoder,
    settings: SearchSettings,
    predicted: Sequence[Reference],
    general: Sequence[str],
    seed: int,
    stored: Sequence[Reference] | None = None,
) -> Examples:
    if not predicted:  # general sentences alone teach only to leave neighbours out
        return Examples([], [], 0, decoder.store, usual_k(decoder.model))
    finding = predicted if stored is None else stored
    every = min(max(len(finding) // FEWEST_STORED, 1), STORED_SHARE)
    finding_themselves = [each._replace(sentence=-1) for each in finding[::every]]
    other = _written_by_model(decoder.model, _at_most(decoder.model, general, _tokens(predicted)))
    of_general = GENERAL_WEIGHT * _tokens(predicted) / max(_tokens(other), 1)
    train: list[Part] = []
    stopping: list[Part] = []
    for references, weight in ((predicted, 1.0), (finding_themselves, STORED_WEIGHT), (other, of_general)):
        few = references[::HELD_OUT_SHARE]
        most = [each for place, each in enumerate(references) if place % HELD_OUT_SHARE]
        for into, some in ((train, most or few), (stopping, few)):
            made = predict(decoder, some, [settings], "examples", BEST_LOG_PROBS)
            into += [Part(predictions, weight) for predictions in made]
    if not other and isinstance(decoder.store, DatastoreFolder):
        metric = decoder.store.manifest.searched_metric(settings.retriever, settings.index)
        for parts in (train, stopping):
            far = [far_queries(part.predictions, decoder.store, metric, seed) for part in parts[:1]]
            parts += [Part(predictions, FAR_WEIGHT) for predictions in far]
    return Examples(train, stopping, len(other), decoder.store, usual_k(decoder.model))


def far_queries(predictions: Predictions, store: DatastoreFolder, metric: str, seed: int) -> Predictions:
    """Tokens whose neighbours are sought among few keys, and which are to be what the model chooses."""
    random = np.random.default_rng(seed)
    queries = predictions.inputs.queries
    k = predictions.neighbours.distances.shape[1]
    parts = []
    for number, size in enumerate(FAR_SAMPLES):
        rows = torch.arange(number, len(predictions), len(FAR_SAMPLES))
        entries = np.sort(random.permutation(len(store))[:size])
        if store.deleted_entries is not None:
            entries = entries[~store.deleted_entries[entries]]
        distances, places = exact_search(store.keys[entries], queries[rows].float(), k, metric)
        found = places >= 0
        ids = torch.from_numpy(entries)[places.clamp(min=0)].masked_fill(~found, -1)
        values = torch.from_numpy(store.values.items[entries].astype(np.int64))[places.clamp(min=0)]
        neighbours = Neighbours(distances, values.masked_fill(~found, 0), ids)
        few = predictions.rows(rows)
        # What p_MT of these values is, nobody asked the model; such tokens are hardly ever likely.
        likely = (values == few.choices.unsqueeze(1)) * few.choice_log_probs.unsqueeze(1)
        unlikely = (values != few.choices.unsqueeze(1)) * _usual_log_prob(few)
        inputs = CombinerInputs(few.inputs.queries, neighbours, likely + unlikely, few.inputs.best_log_probs)
        # Nothing stands before them any more.
        first = torch.zeros_like(few.positions)
        parts.append(replace(few, inputs=inputs, targets=few.choices, log_probs=few.choice_log_probs, positions=first))
    return Predictions.join(parts)


def _usual_log_prob(predictions: Predictions) -> float:
    """The median log p_MT of what was retrieved but is not the model's choice."""
    other = predictions.neighbours.found & (predictions.neighbours.values != predictions.choices.unsqueeze(1))
    log_probs = predictions.inputs.value_log_probs[other]
    return log_probs.median().item() if len(log_probs) else 0.0


def _at_most(model: Model, sentences: Sequence[str], tokens: int) -> list[Source]:
    """The first sentences that have no more than so many tokens together, and fit into the model."""
    sources = [Source(text, read) for text, read in zip(sentences, _encoded(model, sentences), strict=True)]
    fitting = [each for each in sources if model.max_length is None or len(each.tokens) <= model.max_length]
    total = np.cumsum([len(each.tokens) for each in fitting])
    return fitting[: int(np.searchsorted(total, tokens)) + 1]


def _encoded(model: Model, sentences: Sequence[str]) -> Sequence[Sequence[int]]:
    return model.tokenizer.encode_sources(list(sentences)) if sentences else []


def _tokens(references: Sequence[Reference]) -> int:
    return sum(len(each.target) for each in references)


def _written_by_model(model: Model, sources: Sequence[Source]) -> list[Reference]:
    """Sentences with what the model alone, greedily, makes of them."""
    lengths = np.array([len(each.tokens) for each in sources], np.int64)
    written: list[Reference] = []
    for batch in length_batches(lengths, lengths, GENERAL_BATCH_TOKENS):
        some = [sources[number] for number in batch.tolist()]
        made = model.generate([each.tokens for each in some], DecodingSettings(beam_size=1))
        written += [
            Reference(each, list(best.tokens)) for each, [best, *_] in zip(some, made, strict=True) if len(best.tokens)
        ]
    return written
