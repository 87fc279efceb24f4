from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from knn_seq.metrics.base import Metric, Score
from knn_seq.metrics.bootstrap import SAMPLES, SEED, paired_bootstrap


class SacreBleuMetric(Metric):
    """A metric of sacreBLEU: it scores a test set by statistics that are summed over its sentences."""

    library: ClassVar[type[BLEU] | type[CHRF]]

    def scores(
        self, systems: Mapping[str, Sequence[str]], references: Sequence[str], sources: Sequence[str] = ()
    ) -> dict[str, Score]:
        """See `Metric.scores`; the sources are not used."""
        metric = self.library(references=[list(references)])
        statistics = {
            name: np.array(metric._extract_corpus_statistics(translations, None))
            for name, translations in systems.items()
        }
        signature = metric.get_signature()
        if len(systems) > 1:
            signature.update("bs", SAMPLES)
            signature.update("seed", SEED)
        first, *others = statistics

        def score(sums: NDArray[Any]) -> float:
            return float(metric._compute_score_from_stats(sums.tolist()).score)

        p_values = {name: paired_bootstrap(statistics[first], statistics[name], score=score) for name in others}
        return {
            name: Score(score(of_sentences.sum(axis=0)), str(signature), p_values.get(name))
            for name, of_sentences in statistics.items()
        }

    def score(self, translations: Sequence[str], references: Sequence[str]) -> Score:
        """The score of one system."""
        return self.scores({"": translations}, references)[""]
