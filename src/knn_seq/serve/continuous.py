"""Sentences of many requests that are decoded together: each enters as it comes and leaves when it is done."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from knn_seq.decoding import Translation
from knn_seq.models import Source, StepHook
from knn_seq.models.network import NetworkModel
from knn_seq.models.search import SearchLoop
from knn_seq.models.search.loop import FREE_TO_JOIN
from knn_seq.runtime.stopwatch import Stopwatch
from knn_seq.settings import DecodingSettings, SearchSettings
from knn_seq.translator import Translator


def settings_key(options: Mapping[str, Any]) -> str:
    """The same for options that mean the same."""
    return json.dumps(options, sort_keys=True, default=str)


@dataclass(eq=False)
class SharedHook:
    """What adds neighbours to the sentences of equal settings that entered with one generation of the datastore."""

    search: SearchSettings
    decoding: DecodingSettings | Any
    store: object  # the generation
    hook: StepHook | None = None
    sources: dict[int, Source] = field(default_factory=dict)  # those under way, by their numbers


@dataclass(frozen=True)
class UnderWay:
    """A sentence that has a place, or will have one soon."""

    source: Source
    cut: bool
    shared: SharedHook
    number: int  # for the hook


class ContinuousBatch:
    """Decodes sentences that come at any time, each with settings of its own.

    A sentence sees the datastore as it is when it comes.

    Args:
        translator: What translates.
        model: Its model.
        size: Sentences that are decoded together.
    """

    def __init__(self, translator: Translator, model: NetworkModel, size: int) -> None:
        self.translator, self.model = translator, model
        self.stopwatch = Stopwatch(model.device)
        # So many wait for a place that those which become free are filled together.
        self.most = size + int(size * FREE_TO_JOIN)
        self._loop = SearchLoop(model.row_decoder, size * getattr(translator.decoding, "beam_size", 1))
        self._under_way: dict[int, UnderWay] = {}  # by ticket
        self._hooks: dict[str, SharedHook] = {}  # by settings
        self._numbers = count()

    @classmethod
    def of(cls, translator: Translator, size: int) -> ContinuousBatch | None:
        """The same, if the translator's model can take sentences in while others are under way."""
        model = translator.model
        joins = isinstance(model, NetworkModel) and model.row_decoder(1).joins
        return cls(translator, model, size) if joins else None  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self._under_way)

    def add(self, text: str, options: Mapping[str, Any]) -> int | None:
        """Let a sentence enter.

        Args:
            text: The sentence.
            options: Fields of `SearchSettings` and `DecodingSettings`.

        Returns:
            Its ticket; None: it cannot be decoded step by step with others.
        """
        shared, number = self._shared(options), next(self._numbers)
        [source], [cut] = self.translator.read([text], shared.search)
        plans = self.model.search_plans([source.tokens], shared.decoding)
        if plans is None or self._has_terms(source):
            return None
        shared.sources[number] = source
        forced = self.model.forced_tokens(source.tokens)
        ticket = self._loop.add(source.tokens, forced, plans[0], shared.hook, number)
        self._under_way[ticket] = UnderWay(source, cut, shared, number)
        return ticket

    def cancel(self, ticket: int) -> None:
        """Free the place of a sentence that nobody waits for."""
        self._loop.cancel(ticket)
        self._left(ticket)

    def step(self) -> list[tuple[int, Translation]]:
        """One step of all sentences; those that are done with it, by their tickets."""
        done = []
        for ticket, hypotheses in self._loop.step():
            left = self._left(ticket)
            done.append((ticket, Translation.of(hypotheses, left.source.text, self.model.tokenizer, left.cut)))
        return done

    def _left(self, ticket: int) -> UnderWay:
        left = self._under_way.pop(ticket)
        del left.shared.sources[left.number]
        self._hooks = self._used_hooks()
        return left

    def _used_hooks(self) -> dict[str, SharedHook]:
        return {key: shared for key, shared in self._hooks.items() if shared.sources}

    def _shared(self, options: Mapping[str, Any]) -> SharedHook:
        decoder, key = self.translator.decoder, settings_key(options)
        decoder.refresh()
        if key not in self._hooks or self._hooks[key].store is not decoder.store:
            search, decoding = self.translator.settings(options)
            shared = SharedHook(search, decoding, decoder.store)
            shared.hook = decoder.batch(shared.sources, search, self.stopwatch, at_once=False)
            self._hooks = {**self._used_hooks(), key: shared}
        return self._hooks[key]

    def _has_terms(self, source: Source) -> bool:
        """Whether a glossary binds words of a sentence, which may have to be decoded more than once."""
        glossary = self.translator.glossary
        if not glossary:
            return False
        finder = glossary.finder(self.model.source_language, self.model.target_language)
        return bool(finder.find(source.text))
