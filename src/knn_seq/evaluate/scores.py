from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Score(NamedTuple):
    """A corpus score and the sacreBLEU signature that says how it was computed."""

    value: float
    signature: str


def bleu(translations: Sequence[str], references: Sequence[str]) -> Score:
    """BLEU of the whole corpus."""
    from sacrebleu.metrics import BLEU

    return _score(BLEU(), translations, references)


def chrf(translations: Sequence[str], references: Sequence[str]) -> Score:
    """chrF of the whole corpus."""
    from sacrebleu.metrics import CHRF

    return _score(CHRF(), translations, references)


def _score(metric: object, translations: Sequence[str], references: Sequence[str]) -> Score:
    result = metric.corpus_score([str(text) for text in translations], [list(references)])  # type: ignore[attr-defined]
    return Score(float(result.score), str(metric.get_signature()))  # type: ignore[attr-defined]
