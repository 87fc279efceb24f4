from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF


class Score(NamedTuple):
    """A corpus score and the sacreBLEU signature that says how it was computed."""

    value: float
    signature: str


def bleu(translations: Sequence[str], references: Sequence[str]) -> Score:
    """BLEU of the whole corpus."""
    return _score(BLEU(), translations, references)


def chrf(translations: Sequence[str], references: Sequence[str]) -> Score:
    """chrF of the whole corpus."""
    return _score(CHRF(), translations, references)


def _score(metric: BLEU | CHRF, translations: Sequence[str], references: Sequence[str]) -> Score:
    result = metric.corpus_score([str(text) for text in translations], [list(references)])
    return Score(float(result.score), str(metric.get_signature()))
