"""The datastores of a server, each with its translator and its queue."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

from knn_seq.datastore import Datastore
from knn_seq.errors import InvalidSetting
from knn_seq.serve.errors import bad_request, not_found
from knn_seq.serve.languages import language_code, language_name
from knn_seq.serve.metrics import Metrics
from knn_seq.serve.queue import TranslationQueue
from knn_seq.serve.settings import ServerSettings
from knn_seq.serve.stored_texts import CurrentGlossary, ExactMatches
from knn_seq.translator import Translator

_NAME = re.compile(r"[\w.-]{1,64}")


@dataclass(frozen=True)
class Served:
    """A datastore that is served."""

    name: str
    store: Datastore
    translator: Translator
    queue: TranslationQueue
    source: str  # language code
    target: str
    exact_matches: ExactMatches

    @property
    def current(self) -> Datastore:
        """The datastore in the generation that the last batch has seen."""
        return cast(Datastore, self.translator.store)


class Stores:
    """All datastores of a server; the first is the one that is used if a request names none.

    Args:
        served: The datastores.
    """

    def __init__(self, served: Iterable[Served]) -> None:
        self.by_name = {each.name: each for each in served}

    @classmethod
    def open(cls, named: dict[str, Path], settings: ServerSettings, metrics: Metrics) -> Stores:
        """Load models, indexes and combiners."""
        # OpenMP keeps threads for each thread that has computed, until it ends: with more of them than cores, those of
        # the queue would fall asleep between two products.  So whoever loads ends.
        with ThreadPoolExecutor(1, "opening") as opening:
            served = opening.submit(lambda: [_serve(name, path, settings, metrics) for name, path in named.items()])
            return cls(served.result())

    def __iter__(self) -> Iterator[Served]:
        return iter(self.by_name.values())

    def named(self, name: str | None) -> Served:
        """The datastore of that name, or the first."""
        if name is None:
            return next(iter(self))
        if name not in self.by_name:
            raise not_found(f"There is no datastore '{name[:64]}': this server has {', '.join(self.by_name)}.")
        return self.by_name[name]

    def offers(self, source: str, target: str) -> bool:
        """Whether one of them translates between two languages."""
        return language_code(target) in self.targets(source)

    def between(self, source: str, target: str) -> Served:
        """The first datastore that translates between two languages."""
        source, target = language_code(source), language_code(target)
        for each in self:
            if (language_code(each.source), language_code(each.target)) == (source, target):
                return each
        sources = {language_code(each.source) for each in self}
        unknown = next((code for code in (source, target) if code not in sources | self.targets()), None)
        if unknown:
            raise bad_request(f"{unknown[:32]} is not supported")
        raise bad_request(
            f"{language_name(target)} ({target}) is not available as a target language from "
            f"{language_name(source)} ({source})"
        )

    def targets(self, source: str | None = None) -> set[str]:
        """The languages that can be translated into, from one or from any."""
        return {
            language_code(each.target)
            for each in self
            if source is None or language_code(each.source) == language_code(source)
        }

    def sources(self) -> list[str]:
        """The languages that can be translated from."""
        return sorted({language_code(each.source) for each in self})

    def close(self, seconds: float) -> None:
        """Finish what waits, and let go of everything."""
        for each in self:
            each.queue.stop(seconds)
            each.translator.close()


def parse_stores(given: Iterable[str]) -> dict[str, Path]:
    """Datastores as they stand on a command line: PATH or NAME=PATH; a path's name is that of its folder."""
    named: dict[str, Path] = {}
    for each in given:
        name, equals, path = each.partition("=")
        if not equals:
            name, path = Path(each).resolve().name, each
        if not _NAME.fullmatch(name):
            raise InvalidSetting(f"A datastore cannot be called '{name}': use letters, digits, '.', '-' and '_'.")
        if name in named:
            raise InvalidSetting(f"Two datastores are called '{name}': give them names, as in law={path}.")
        named[name] = Path(path)
    return named


def _serve(name: str, path: Path, settings: ServerSettings, metrics: Metrics) -> Served:
    store = Datastore(path)
    translator = Translator(store)
    model = translator.model
    source, target = model.source_language, model.target_language
    if source is None or target is None:
        raise InvalidSetting(
            f"{path} does not say which languages it translates between: build it with --source-lang and --target-lang."
        )
    glossary = CurrentGlossary(path)

    def prepare() -> None:
        translator.glossary = glossary.read()

    done = partial(metrics.batch_done, name)
    queue = TranslationQueue(translator, settings.batch_size, settings.queue_size, prepare, done)
    return Served(name, store, translator, queue, source, target, ExactMatches(path))
