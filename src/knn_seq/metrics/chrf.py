from __future__ import annotations

from collections.abc import Sequence

from sacrebleu.metrics.chrf import CHRF

from knn_seq.metrics.base import METRICS, Score
from knn_seq.metrics.sacrebleu import SacreBleuMetric


@METRICS.register("chrf")
class Chrf(SacreBleuMetric):
    """chrF, as sacreBLEU computes it."""

    name = "chrF"
    library = CHRF


def chrf(translations: Sequence[str], references: Sequence[str]) -> Score:
    """chrF of a test set."""
    return Chrf().score(translations, references)


def sentence_chrf(translations: Sequence[str], references: Sequence[str]) -> list[float]:
    """chrF of each sentence."""
    metric = CHRF()
    return [
        float(metric.sentence_score(translation, [reference]).score)
        for translation, reference in zip(translations, references, strict=True)
    ]
