"""What an explanation is: as objects, and as dictionaries for JSON lines."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from knn_seq.decoding import Translation
from knn_seq.storage import DatastoreFolder
from knn_seq.storage.translation_memory import TranslationMemory

Texts = dict[int, dict[str, str]]
"""Source and target text, id, corpus and date of sentence pairs, by their numbers."""


@dataclass(frozen=True)
class RetrievedToken:
    """One neighbour of one output token."""

    entry: int  # of the datastore or the translation memory
    sentence: int  # the sentence pair that the entry belongs to
    position: int  # the place of the entry's token in its target sentence
    token: str
    distance: float
    probability: float  # the part of p_kNN that it gives to its token


@dataclass(frozen=True)
class TokenExplanation:
    """Why one token was written."""

    token: str
    probability: float  # in the mixture
    model_probability: float
    neighbour_probability: float
    weight: float  # λ, of the neighbours in the mixture
    model_choice: str  # the token that the model alone holds most likely here
    model_choice_probability: float  # in the mixture
    changed: bool  # neighbours made the token more likely than the model's choice
    # Why λ is what it is; without neighbours the first three are None.
    nearest_distance: float | None
    relative_distance: float | None  # the same in units of a usual distance; None, too, if that is not known
    agreement: float | None  # the share of all neighbours whose token is the one that they together hold most likely
    model_certainty: float  # p_MT of the model's choice
    neighbours: list[RetrievedToken]  # nearest first


@dataclass(frozen=True)
class Explanation:
    """Why a translation is what it is."""

    translation: Translation
    tokens: list[TokenExplanation]

    @property
    def log_probability(self) -> float:
        """The logarithm of the translation's probability in the mixture."""
        return sum(math.log(token.probability) if token.probability else -math.inf for token in self.tokens)

    def sentences(self) -> list[tuple[int, float]]:
        """The sentences that made what was written more likely, with the probability they brought, most first."""
        mass: dict[int, float] = defaultdict(float)
        for token in self.tokens:
            for neighbour in token.neighbours:
                if neighbour.token == token.token:
                    mass[neighbour.sentence] += token.weight * neighbour.probability
        return sorted(mass.items(), key=lambda item: (-item[1], item[0]))

    def to_dict(self, store: DatastoreFolder | TranslationMemory) -> dict[str, Any]:
        """For JSON, with the texts of the neighbours' sentences; see `to_dicts` for many explanations."""
        return to_dicts([self], store)[0]


def to_dicts(explanations: Sequence[Explanation], store: DatastoreFolder | TranslationMemory) -> list[dict[str, Any]]:
    """Explanations for JSON; the text of each neighbour's sentence is read once.

    Args:
        explanations: The explanations.
        store: What was searched.
    """
    found = {neighbour.sentence for one in explanations for token in one.tokens for neighbour in token.neighbours}
    texts = {sentence: _sentence(store, sentence) for sentence in sorted(found)}
    return [_explanation(explanation, texts) for explanation in explanations]


def _sentence(store: DatastoreFolder | TranslationMemory, number: int) -> dict[str, str]:
    (source, target), info = store.texts[number], store.pairs[number]
    return {"source": source, "target": target, "id": info.id, "corpus": info.corpus, "date": info.date}


def _explanation(explanation: Explanation, texts: Texts) -> dict[str, Any]:
    return {
        "source": explanation.translation.source,
        "translation": explanation.translation.text,
        "log_probability": _rounded(explanation.log_probability),
        **(
            {"terms": [term._asdict() for term in explanation.translation.terms]}
            if explanation.translation.terms
            else {}
        ),
        "tokens": [_token(token, texts) for token in explanation.tokens],
    }


def _token(token: TokenExplanation, texts: Texts) -> dict[str, Any]:
    return {
        "token": token.token,
        "probability": _rounded(token.probability),
        "model_probability": _rounded(token.model_probability),
        "neighbour_probability": _rounded(token.neighbour_probability),
        "weight": _rounded(token.weight),
        "model_choice": token.model_choice,
        "changed": token.changed,
        "nearest_distance": _rounded(token.nearest_distance),
        "relative_distance": _rounded(token.relative_distance),
        "agreement": _rounded(token.agreement),
        "model_certainty": _rounded(token.model_certainty),
        "neighbours": [
            {
                "entry": neighbour.entry,
                "distance": _rounded(neighbour.distance),
                "probability": _rounded(neighbour.probability),
                "token": neighbour.token,
                "sentence": neighbour.sentence,
                "position": neighbour.position,
                **texts[neighbour.sentence],
            }
            for neighbour in token.neighbours
        ],
    }


def _rounded(value: float | None) -> float | None:
    """Six significant digits; JSON has no infinity."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")
