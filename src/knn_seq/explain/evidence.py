from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from knn_seq.combine import COMBINERS
from knn_seq.models import TokenPair
from knn_seq.translate import Translator
from knn_seq.translation import Translation


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
    votes: list[Vote]  # nearest first


@dataclass(frozen=True)
class Explanation:
    """Why a translation is what it is."""

    translation: Translation
    tokens: list[Evidence]

    @property
    def log_probability(self) -> float:
        """The logarithm of the translation's probability under the mixture."""
        return sum(math.log(evidence.probability) for evidence in self.tokens)

    def sentences(self) -> list[tuple[int, float]]:
        """The sentences searched that spoke for what was written, with the mass they brought, most first."""
        mass: dict[int, float] = defaultdict(float)
        for evidence in self.tokens:
            for vote in evidence.votes:
                if vote.token == evidence.token:
                    mass[vote.sentence] += evidence.weight * vote.share
        return sorted(mass.items(), key=lambda item: (-item[1], item[0]))


def explain(translator: Translator, translations: Sequence[Translation], **settings: object) -> list[Explanation]:
    """Trace translations, one by one, to the model and to the neighbours of each of their tokens.

    The translation is read again under teacher forcing, so any translation can be explained, not only the translator's.

    Args:
        translator: The translator.
        translations: What it, or somebody else, made of their sources.
        **settings: Search settings; give those that the translations were made with.
    """
    return [_explain_one(translator, translation, **settings) for translation in translations]


def _explain_one(translator: Translator, translation: Translation, **settings: object) -> Explanation:
    if not translation.tokens:
        return Explanation(translation, [])
    search, _ = translator.settings(settings)
    store, tokenizer = translator.store, translator.model.tokenizer
    [source], _ = translator.read([translation.source])
    queries, log_probs = translator.model.score([TokenPair(source.tokens, translation.tokens)])
    retriever, combiner = translator.retriever(search), COMBINERS.get(search.combiner)(search)
    sentences = torch.zeros(len(queries), dtype=torch.int64)
    neighbours = retriever.retrieve(queries, sentences, search.k, retriever.prepare([source], search.subset_size))
    targets = torch.tensor(translation.tokens, device=queries.device)
    votes = combiner.votes(neighbours)
    right = (votes * (neighbours.values == targets.unsqueeze(1))).sum(dim=1)
    weights = combiner.mixture_weights(neighbours)
    model = log_probs.exp()
    rows, positions = store.locate(neighbours.ids.cpu().numpy())
    evidence = []
    for t, token in enumerate(translation.tokens):
        evidence.append(
            Evidence(
                token=tokenizer.token(token),
                probability=float(weights[t] * right[t] + (1 - weights[t]) * model[t]),
                model_probability=float(model[t]),
                neighbour_probability=float(right[t]),
                weight=float(weights[t]),
                votes=[
                    Vote(
                        entry=entry,
                        sentence=int(rows[t, i]),
                        position=int(positions[t, i]),
                        token=tokenizer.token(int(neighbours.values[t, i])),
                        distance=float(neighbours.distances[t, i]),
                        share=float(votes[t, i]),
                    )
                    for i, entry in enumerate(neighbours.ids[t].tolist())
                    if entry >= 0
                ],
            )
        )
    return Explanation(translation, evidence)
