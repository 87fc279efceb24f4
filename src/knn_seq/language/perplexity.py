"""Perplexity of a text under several systems, from one pass of the model and as few searches as there are kinds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from knn_seq import __version__
from knn_seq.combine import Combiner, mix_tokens
from knn_seq.decoding import KnnDecoder
from knn_seq.decoding.searches import Searches
from knn_seq.language.text import Text
from knn_seq.likelihood import Predictions, predict_batches
from knn_seq.runtime.progress import Progress
from knn_seq.settings import SearchSettings, with_value

SHOWN_FINGERPRINT = 8


@dataclass(frozen=True)
class TextScore:
    """How likely a text is under one system."""

    name: str
    settings: SearchSettings
    log_likelihood: float  # of all its tokens
    tokens: int
    words: int
    searches_saved: float  # the share

    @property
    def perplexity(self) -> float:
        """A token."""
        return math.exp(-self.log_likelihood / self.tokens)

    @property
    def word_perplexity(self) -> float:
        """A word: comparable between models with other vocabularies."""
        exponent = -self.log_likelihood / max(self.words, 1)
        return math.exp(exponent) if exponent < math.log(1e300) else math.inf

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "name": self.name,
            "perplexity": self.perplexity,
            "word_perplexity": self.word_perplexity if math.isfinite(self.word_perplexity) else None,
            "log_likelihood": self.log_likelihood,
            "searches_saved": self.searches_saved,
            "settings": with_value(self.settings),
        }


@dataclass(frozen=True)
class Perplexity:
    """Systems on the same text; the first is what the others are compared with."""

    scores: list[TextScore]
    signature: str

    def table(self) -> str:
        """For people."""
        width = max(len(score.name) for score in self.scores)
        lines = [f"{'':<{width}}  perplexity  a word     change  searches saved"]
        for score in self.scores:
            change = score.perplexity / self.scores[0].perplexity - 1
            saved = f"{score.searches_saved:.1%}" if score.settings.weight else ""
            figures = f"{score.perplexity:>10.3f}  {score.word_perplexity:>6.4g}  {change:>9.2%}  {saved:>14}"
            lines.append(f"{score.name:<{width}}  {figures}")
        return "\n".join([*lines, self.signature])

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"systems": [score.to_dict() for score in self.scores], "signature": self.signature}


def perplexity(decoder: KnnDecoder, text: Text, systems: Mapping[str, SearchSettings]) -> Perplexity:
    """The perplexity of a text under each system.

    It is exp of minus the mean log p of all tokens but the first, each predicted once from a sliding window.  Systems
    that search in the same way share their searches.

    Args:
        decoder: The model, and what it searches.
        text: The text.
        systems: The settings of each, by name; a weight of 0 is the model alone.
    """
    searched = {name: _search_of(each) for name, each in systems.items()}
    kinds = list(dict.fromkeys(map(_key, searched.values())))
    asked = [_widest([each for each in searched.values() if _key(each) == kind]) for kind in kinds]
    combiners = {name: decoder.combiner(each) for name, each in systems.items()}
    most = max(combiner.best_log_probs for combiner in combiners.values())
    searches = [Searches() for _ in kinds]
    totals = dict.fromkeys(systems, 0.0)
    with Progress("perplexity", text.tokens, "token") as progress:
        for _, made in predict_batches(decoder, text.references, asked, most, searches):
            for name, settings in systems.items():
                predictions = made[kinds.index(_key(searched[name]))]
                totals[name] += _log_likelihood(predictions, combiners[name], settings)
            progress.update(len(made[0]))
    scores = [
        TextScore(name, each, totals[name], text.tokens, text.words, searches[kinds.index(_key(searched[name]))].saved)
        for name, each in systems.items()
    ]
    return Perplexity(scores, signature(decoder, text))


def signature(decoder: KnnDecoder, text: Text) -> str:
    """What another person needs to know to compute the same numbers."""
    model = decoder.model
    name = model.settings.name
    fields = {
        "perplexity": "token",
        "model": Path(name).name if Path(name).exists() else name,  # others have it in another folder
        "fingerprint": model.fingerprint.weights[:SHOWN_FINGERPRINT],
        "window": text.context + text.stride,
        "stride": text.stride,
        "text": text.description,
        "tokens": text.tokens,
        "words": text.words,
        "tokens/word": f"{text.tokens / max(text.words, 1):.4f}",
        "knn-seq": __version__,
    }
    return "|".join(f"{name}:{value}" for name, value in fields.items())


def _log_likelihood(predictions: Predictions, combiner: Combiner, settings: SearchSettings) -> float:
    if not settings.weight:
        return float(predictions.log_probs.double().sum())
    inputs = predictions.inputs.nearest(settings.k)
    inputs = replace(inputs, best_log_probs=inputs.best_log_probs[:, : combiner.best_log_probs])
    combination = combiner.combine(inputs, settings)
    mixed = mix_tokens(predictions.targets, predictions.log_probs.double(), inputs.neighbours, combination)
    return float(mixed.sum())


def _search_of(settings: SearchSettings) -> SearchSettings:
    """How is searched, whatever is made of it; where pointers are followed, k decides which there are."""
    plain = SearchSettings()
    same = replace(settings, combiner=plain.combiner, combiner_options={}, temperature=plain.temperature)
    return replace(same, weight=1.0 if settings.weight else 0.0)


def _key(settings: SearchSettings) -> str:
    named = with_value(settings)
    if settings.pointers is None:
        named.pop("k")
    return repr(sorted(named.items()))


def _widest(settings: list[SearchSettings]) -> SearchSettings:
    return max(settings, key=lambda each: each.k)
