"""Texts with placeholders, and HTML: what must not change stays, and HTML cannot do harm."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from knn_seq.decoding import Translation
from knn_seq.documents import Filled
from knn_seq.documents.html import HtmlDocument
from knn_seq.documents.sentences import sentence_starts
from knn_seq.protect import Attention, Content, Protected, Protector, join
from knn_seq.serve.stores import Served

BYTE_ORDER_MARK = "\ufeff"


@dataclass(frozen=True)
class TranslatedText:
    """A text of a request, translated."""

    text: str
    sentences: list[Translation]
    alternatives: list[str]
    learned: bool = False  # it is what the memory has for exactly this source


class ProtectedTexts:
    """Translates texts in a thread: a text may be translated several times until all of its placeholders are there.

    Args:
        served: The datastore.
        options: Fields of `SearchSettings` and `DecodingSettings`.
        loop: Where the queue is served.
    """

    def __init__(self, served: Served, options: Mapping[str, Any], loop: asyncio.AbstractEventLoop) -> None:
        self._served, self._options, self._loop = served, options, loop
        self._known: dict[str, Translation] = {}
        self._running: Future[list[Translation]] | None = None
        self._cancelled = False

    def translate(self, texts: Sequence[str], html: bool, alternatives: int) -> list[TranslatedText]:
        """Translate texts.

        Args:
            texts: The texts.
            html: They are HTML.
            alternatives: How many other translations of each are wanted.
        """
        documents = [HtmlDocument(f"{BYTE_ORDER_MARK}{text}".encode(), "The text") if html else text for text in texts]
        results = []
        for document in documents:
            best, used = self._translated(document, None)
            others = [self._translated(document, number)[0] for number in range(alternatives)]
            results.append(TranslatedText(best, used, others))
        return results

    def cancel(self) -> None:
        """Nobody waits any more."""
        self._cancelled = True
        if self._running is not None:
            self._running.cancel()

    def _translated(self, document: HtmlDocument | str, alternative: int | None) -> tuple[str, list[Translation]]:
        """A text, and what the model wrote for it."""
        protector = Protector(
            partial(self._choose, alternative),
            sentences=partial(sentence_starts, language=self._served.source),
            attention=self._attended,
        )
        if isinstance(document, str):
            [made] = protector.translate([(document,)])
            return join(made.content), _used([made])
        wanted = [number for number, segment in enumerate(document.segments) if segment.wanted]
        contents: list[Content] = [document.segments[number].content for number in wanted]
        filled: list[Filled | None] = [None] * len(document.segments)
        all_made = protector.translate(contents)
        for number, made in zip(wanted, all_made, strict=True):
            filled[number] = Filled(made.content)
        return sanitised(document.filled(filled).decode().removeprefix(BYTE_ORDER_MARK)), _used(all_made)

    def _choose(self, alternative: int | None, texts: list[str]) -> list[Translation]:
        best = self._asked(texts)
        if alternative is None:
            return best
        return [each.alternatives[alternative] if alternative < len(each.alternatives) else each for each in best]

    def _attended(self, translations: Sequence[Translation]) -> list[Attention | None]:
        """Where the model looked, asked between two steps: hooks on a network see all that runs through it."""
        ask = partial(self._served.translator.attention, translations)
        return asyncio.run_coroutine_threadsafe(self._served.queue.call(ask), self._loop).result()

    def _asked(self, texts: list[str]) -> list[Translation]:
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if new:
            if self._cancelled:
                raise asyncio.CancelledError
            self._running = asyncio.run_coroutine_threadsafe(
                self._served.queue.translate(new, self._options), self._loop
            )
            self._known.update(zip(new, self._running.result(), strict=True))
        return [self._known[text] for text in texts]


def sanitised(html: str) -> str:
    """HTML without anything that runs: no script, no handler, no address but of a document or a picture."""
    import nh3

    tags = nh3.ALLOWED_TAGS | ALSO_ALLOWED
    return nh3.clean(
        html,
        tags=tags,
        attributes={tag: nh3.ALLOWED_ATTRIBUTES.get(tag, set()) | ATTRIBUTES for tag in tags},
        generic_attribute_prefixes={"data-", "aria-"},
        strip_comments=False,
        link_rel=None,
    )


ALSO_ALLOWED = {"section", "main", "label", "font", "button", "picture"}
ATTRIBUTES = {"id", "class", "lang", "dir", "title", "translate", "role"}


def _used(results: Sequence[Protected]) -> list[Translation]:
    return [text for made in results for text in made.used if isinstance(text, Translation)]
