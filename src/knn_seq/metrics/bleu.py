from __future__ import annotations

from collections.abc import Sequence

from sacrebleu.metrics.bleu import BLEU

from knn_seq.metrics.base import METRICS, Score
from knn_seq.metrics.sacrebleu import SacreBleuMetric


@METRICS.register("bleu")
class Bleu(SacreBleuMetric):
    """BLEU, as sacreBLEU computes it."""

    name = "BLEU"
    library = BLEU


def bleu(translations: Sequence[str], references: Sequence[str]) -> Score:
    """BLEU of a test set."""
    return Bleu().score(translations, references)
