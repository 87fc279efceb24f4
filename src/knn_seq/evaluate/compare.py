from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from knn_seq.errors import KnnSeqError
from knn_seq.evaluate.comparison import Comparison, System
from knn_seq.explain import changed_tokens
from knn_seq.metrics import METRICS, Metric
from knn_seq.runtime.progress import Progress
from knn_seq.runtime.stopwatch import Stopwatch
from knn_seq.runtime.wording import count
from knn_seq.settings import with_value
from knn_seq.translator import Translator


def compare(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    systems: Mapping[str, Mapping[str, Any]],
    metrics: Sequence[str | Metric] = ("bleu", "chrf"),
) -> Comparison:
    """Translate the same sentences with each system and score them.

    Args:
        translator: The translator.
        sources: The sentences.
        references: Their reference translations.
        systems: The settings of each system, by name; the first is what the others are compared with.
        metrics: Names of metrics, or metrics.
    """
    if not sources or not systems:
        raise KnnSeqError("There is nothing to compare: give sentences and systems.")
    if len(sources) != len(references):
        raise KnnSeqError(
            f"The test set has {count(len(sources), 'sentence')}, but {count(len(references), 'reference')}."
        )
    asked = [METRICS.get(metric)() if isinstance(metric, str) else metric for metric in metrics]
    for metric in asked:
        metric.require()
    timed = [_timed(translator, sources, name, dict(settings)) for name, settings in systems.items()]
    translations = {system.name: system.translations for system in timed}
    scores = {metric.name: metric.scores(translations, references, sources) for metric in asked}
    return Comparison(
        [
            replace(system, scores={metric: of_systems[system.name] for metric, of_systems in scores.items()})
            for system in timed
        ],
        sources,
        references,
    )


def _timed(translator: Translator, sources: Sequence[str], name: str, settings: dict[str, Any]) -> System:
    """The system without its scores."""
    search, decoding = translator.settings(settings)
    # The first batch of a process is slow for reasons of its own; it must not count against one system.
    translator.translate(sources[: decoding.batch_size], **settings)
    stopwatch = Stopwatch(getattr(translator.model, "device", "cpu"))
    with Progress(f"translate ({name})", len(sources), "sentence") as progress:
        translator.stopwatch = stopwatch
        try:
            start = time.perf_counter()
            translations = translator.translate(sources, on_progress=progress.update, **settings)
            seconds = time.perf_counter() - start
        finally:
            translator.stopwatch = None
    shares = {part: stopwatch.seconds[part] / seconds for part in ("search", "combination")}
    return System(
        name=name,
        settings=settings,
        translations=translations,
        scores={},
        seconds=seconds,
        shares={"model": 1 - sum(shares.values()), **shares},
        changed_tokens=changed_tokens(translator, translations, **with_value(search)) if search.weight else [],
    )
