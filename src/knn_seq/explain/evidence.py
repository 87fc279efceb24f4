"""What an explanation is: as objects, and as dictionaries for JSON lines."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from knn_seq.datastore import Datastore
from knn_seq.memory import TranslationMemory
from knn_seq.translation import Translation

Texts = dict[int, tuple[str, str]]
"""Source and target text of sentence pairs, by their numbers."""


@dataclass(frozen=True)
class Vote:
    """One neighbour of one output token."""

    entry: int  # of the datastore or the translation memory
    sentence: int  # the sentence pair that the entry belongs to
    position: int  # the place of the entry's token in its target sentence
    token: str
    distance: float
    share: float  # of p_kNN


@dataclass(frozen=True)
class Evidence:
    """Why one token was written."""

    token: str
    probability: float  # under the mixture
    model_probability: float
    neighbour_probability: float
    weight: float  # of the neighbours in the mixture
    model_choice: str  # the token that the model alone holds most likely here
    model_choice_probability: float  # under the mixture
    changed: bool  # the neighbours lifted the token over the model's choice
    votes: list[Vote]  # nearest first


@dataclass(frozen=True)
class Explanation:
    """Why a translation is what it is."""

    translation: Translation
    tokens: list[Evidence]

    @property
    def log_probability(self) -> float:
        """The logarithm of the translation's probability under the mixture."""
        return sum(math.log(token.probability) if token.probability else -math.inf for token in self.tokens)

    def sentences(self) -> list[tuple[int, float]]:
        """The sentences searched that spoke for what was written, with the mass they brought, most first."""
        mass: dict[int, float] = defaultdict(float)
        for evidence in self.tokens:
            for vote in evidence.votes:
                if vote.token == evidence.token:
                    mass[vote.sentence] += evidence.weight * vote.share
        return sorted(mass.items(), key=lambda item: (-item[1], item[0]))

    def to_dict(self, store: Datastore | TranslationMemory) -> dict[str, Any]:
        """For JSON, with the texts of the neighbours' sentences; see `to_dicts` for many explanations."""
        return to_dicts([self], store)[0]


def to_dicts(explanations: Sequence[Explanation], store: Datastore | TranslationMemory) -> list[dict[str, Any]]:
    """Explanations for JSON; the text of each sentence that voted is read once.

    Args:
        explanations: The explanations.
        store: What was searched.
    """
    voted = {vote.sentence for one in explanations for evidence in one.tokens for vote in evidence.votes}
    texts = {sentence: store.texts[sentence] for sentence in sorted(voted)}
    return [_explanation(explanation, texts) for explanation in explanations]


def _explanation(explanation: Explanation, texts: Texts) -> dict[str, Any]:
    return {
        "source": explanation.translation.source,
        "translation": explanation.translation.text,
        "log_probability": _rounded(explanation.log_probability),
        "tokens": [_token(evidence, texts) for evidence in explanation.tokens],
    }


def _token(evidence: Evidence, texts: Texts) -> dict[str, Any]:
    return {
        "token": evidence.token,
        "probability": _rounded(evidence.probability),
        "model_probability": _rounded(evidence.model_probability),
        "neighbour_probability": _rounded(evidence.neighbour_probability),
        "weight": _rounded(evidence.weight),
        "model_choice": evidence.model_choice,
        "changed": evidence.changed,
        "neighbours": [
            {
                "entry": vote.entry,
                "distance": _rounded(vote.distance),
                "share": _rounded(vote.share),
                "token": vote.token,
                "sentence": vote.sentence,
                "position": vote.position,
                "source": texts[vote.sentence][0],
                "target": texts[vote.sentence][1],
            }
            for vote in evidence.votes
        ],
    }


def _rounded(value: float) -> float | None:
    """Six significant digits; JSON has no infinity."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
