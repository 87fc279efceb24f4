from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from knn_seq.decoding import Translation
from knn_seq.errors import InvalidSetting, KnnSeqError
from knn_seq.evaluate.comparison import Comparison, System
from knn_seq.evaluate.repetition import new_repetitions
from knn_seq.evaluate.stored_targets import SENTENCES, StoredTargets, reproduced, stored_sample, stored_targets
from knn_seq.explain import changed_tokens
from knn_seq.metrics import METRICS, Metric
from knn_seq.runtime.progress import Progress
from knn_seq.runtime.stopwatch import Stopwatch
from knn_seq.runtime.wording import count
from knn_seq.settings import DecodingSettings, with_value
from knn_seq.translator import Translator

FEWEST_PIECES, MOST_PIECES = 3, 5  # of the test set, each of which gives a speed


class SystemSetup(NamedTuple):
    """What a system translates with, and how."""

    translator: Translator
    settings: Mapping[str, Any]  # fields of `SearchSettings` and `DecodingSettings`


def compare(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    systems: Mapping[str, Mapping[str, Any] | SystemSetup],
    metrics: Sequence[str | Metric] = ("bleu", "chrf"),
    stored: int = SENTENCES,
    seed: int = 0,
) -> Comparison:
    """Translate the same sentences with each system and score them.

    The systems take turns, piece by piece of the test set, so that whatever else the machine does slows all of them;
    each piece gives a speed.

    Args:
        translator: The translator.
        sources: The sentences.
        references: Their reference translations.
        systems: The settings of each system, by name, or its own translator and settings; the first is what the others
            are compared with.
        metrics: Names of metrics, or metrics.
        stored: How many sources out of its store each system translates as well, to see whether their targets come
            out as they are there; 0: none.
        seed: Of the choice of these sources.
    """
    if stored < 0:
        raise InvalidSetting(f"The number of stored sources must be at least 0, not {stored}.")
    if not any(source.strip() for source in sources) or not systems:
        raise KnnSeqError("There is nothing to compare: give sentences and systems.")
    if len(sources) != len(references):
        raise KnnSeqError(
            f"The test set has {count(len(sources), 'sentence')}, but {count(len(references), 'reference')}."
        )
    asked = [METRICS.get(metric)() if isinstance(metric, str) else metric for metric in metrics]
    for metric in asked:
        metric.require()
    setups = {
        name: each if isinstance(each, SystemSetup) else SystemSetup(translator, each) for name, each in systems.items()
    }
    timed = [turns.system(name) for name, turns in _take_turns(setups, sources).items()]
    given_back = _given_back(setups, stored, seed) if stored else {}
    translations = {system.name: system.translations for system in timed}
    scores = {metric.name: metric.scores(translations, references, sources) for metric in asked}
    return Comparison(
        [
            replace(
                system,
                scores={metric: of_systems[system.name] for metric, of_systems in scores.items()},
                stored=given_back.get(system.name),
                repetitions=new_repetitions(system.translations, timed[0].translations),
            )
            for system in timed
        ],
        sources,
        references,
    )


class _Turns:
    """A system's translations and times so far."""

    def __init__(self, setup: SystemSetup, sentences: int) -> None:
        self.translator, self.settings = setup.translator, dict(setup.settings)
        search, decoding = self.translator.settings(self.settings)
        self.search = search
        self.batch_size: int = getattr(decoding, "batch_size", DecodingSettings.batch_size)
        self.stopwatch = Stopwatch(getattr(self.translator.model, "device", "cpu"))
        self.translations = [Translation("", "", [])] * sentences
        self.seconds = 0.0
        self.speeds: list[float] = []

    def warm_up(self, sources: Sequence[str]) -> None:
        """The first batch of a process is slow for reasons of its own; it must not count against one system."""
        self.translator.translate(sources[: self.batch_size], **self.settings)

    def take(self, sources: Sequence[str], piece: Sequence[int], progress: Progress) -> None:
        """Translate a piece of the test set."""
        self.translator.stopwatch = self.stopwatch
        try:
            start = time.perf_counter()
            made = self.translator.translate([sources[i] for i in piece], progress.update, **self.settings)
            seconds = time.perf_counter() - start
        finally:
            self.translator.stopwatch = None
        for i, translation in zip(piece, made, strict=True):
            self.translations[i] = translation
        self.seconds += seconds
        self.speeds.append(sum(len(translation.tokens) for translation in made) / seconds)

    def system(self, name: str) -> System:
        """The system without its scores."""
        shares = {part: self.stopwatch.seconds[part] / self.seconds for part in ("search", "combination")}
        changed = (
            changed_tokens(self.translator, self.translations, **with_value(self.search)) if self.search.weight else []
        )
        return System(
            name=name,
            translator=self.translator,
            settings=self.settings,
            translations=self.translations,
            scores={},
            seconds=self.seconds,
            speeds=self.speeds,
            shares={"model": 1 - sum(shares.values()), **shares},
            changed_tokens=changed,
        )


def _given_back(setups: Mapping[str, SystemSetup], sentences: int, seed: int) -> dict[str, StoredTargets]:
    """How much of its store each system gives back; systems with the same store are asked for the same."""
    targets: dict[int, dict[str, set[str]]] = {}
    given_back = {}
    with Progress("stored", len(setups) * sentences, "sentence") as progress:
        for name, (translator, settings) in setups.items():
            texts = translator.store.live_texts()
            if id(texts) not in targets:
                targets[id(texts)] = stored_targets(texts, stored_sample(texts, sentences, seed))
            given_back[name] = reproduced(translator, settings, targets[id(texts)], progress.update)
    return given_back


def _take_turns(setups: Mapping[str, SystemSetup], sources: Sequence[str]) -> dict[str, _Turns]:
    every = {name: _Turns(setup, len(sources)) for name, setup in setups.items()}
    for turns in every.values():
        turns.warm_up(sources)
    pieces = _pieces(sources, max(turns.batch_size for turns in every.values()))
    with Progress("translate", len(every) * len(sources), "sentence") as progress:
        for piece in pieces:
            for turns in every.values():
                turns.take(sources, piece, progress)
    return every


def _pieces(sources: Sequence[str], batch_size: int) -> list[list[int]]:
    """The numbers of the sentences in each piece; all pieces have sentences of the same lengths, and none is empty."""
    by_length = sorted(range(len(sources)), key=lambda i: -len(sources[i].strip()))
    full = sum(bool(source.strip()) for source in sources)
    count = min(full, MOST_PIECES, max(FEWEST_PIECES, len(sources) // batch_size))
    return [by_length[start::count] for start in range(count)]
