from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from knn_seq.decoding import Translation
from knn_seq.documents import DOCUMENT_FORMATS, Document, Filled, Segment, open_document
from knn_seq.documents.sentences import sentence_starts
from knn_seq.errors import KnnSeqError
from knn_seq.explain import changed_tokens
from knn_seq.files.report import FileReport, SegmentReport
from knn_seq.files.stored import StoredTranslations
from knn_seq.protect import Content, Protected, Protector, join
from knn_seq.storage.atomic import disk_errors, partial_of, publish
from knn_seq.translator import Translator

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from knn_seq.settings import TranslateOptions

SEGMENTS_AT_ONCE = 256

OnProgress = Callable[[int], None]
Changed = Callable[..., list[list[bool]]]
"""What `changed_tokens` takes and gives."""


class TranslatedDocument(NamedTuple):
    """A document after its translation."""

    data: bytes  # the file
    report: FileReport


def translate_file(
    translator: Translator,
    path: str | Path,
    output: str | Path,
    *,
    format: str | None = None,
    document_options: Mapping[str, Any] | None = None,
    exact_matches: bool = True,
    placeholders: Sequence[str] = (),
    on_progress: OnProgress | None = None,
    **options: Unpack[TranslateOptions],
) -> FileReport:
    """Translate a file into one of the same format; all that is not text stays as it is, byte for byte.

    Args:
        translator: The translator.
        path: The file.
        output: The file to write, in one step at the end; it may be the same.
        format: The document format's name; None: told by the name of the file.
        document_options: Options that the format declares.
        exact_matches: A segment that the store has as it is takes its stored translation.
        placeholders: Regular expressions of further text that must not change.
        on_progress: Called with the number of segments as they are finished.
        **options: Fields of `SearchSettings` and `DecodingSettings`.
    """
    document = open_for(translator, path, format, document_options)
    made = translate_document(
        translator,
        document,
        exact_matches=exact_matches,
        placeholders=placeholders,
        on_progress=on_progress,
        **options,
    )
    write_document(Path(output), made.data)
    return replace(made.report, output=str(output))


def open_for(
    translator: Translator,
    path: str | Path,
    format: str | None = None,
    document_options: Mapping[str, Any] | None = None,
) -> Document:
    """Open a document that a translator is to translate: it knows the languages."""
    model = translator.model
    languages = {"source_lang": model.source_language, "target_lang": model.target_language}
    return open_document(path, format, document_options, languages)


def translate_document(
    translator: Translator,
    document: Document,
    *,
    exact_matches: bool = True,
    placeholders: Sequence[str] = (),
    on_progress: OnProgress | None = None,
    changed: Changed = changed_tokens,
    **options: Unpack[TranslateOptions],
) -> TranslatedDocument:
    """Translate an opened document; the arguments are those of `translate_file`, and who finds `changed_tokens`."""
    start = time.perf_counter()
    run = _Run(translator, exact_matches, placeholders, changed, options)
    wanted = [number for number, segment in enumerate(document.segments) if segment.wanted]
    filled: list[Filled | None] = [None] * len(document.segments)
    reports: list[SegmentReport] = []
    for first in range(0, len(wanted), SEGMENTS_AT_ONCE):
        numbers = wanted[first : first + SEGMENTS_AT_ONCE]
        results = run.translate([document.segments[number] for number in numbers])
        for number, (content, report) in zip(numbers, results, strict=True):
            filled[number] = Filled(content, report.describe(), report.origin == "exact")
            reports.append(report)
        if on_progress is not None:
            on_progress(len(numbers))
    data = document.filled(filled)
    name = DOCUMENT_FORMATS.name_of(type(document))
    kept = len(filled) - len(wanted)
    seconds = time.perf_counter() - start
    return TranslatedDocument(data, FileReport(document.name, None, name, seconds, kept, run.terms, run.cut, reports))


def write_document(path: Path, data: bytes) -> None:
    """Write a file in one step: it is there complete, or as it was before."""
    try:
        with disk_errors(path):
            partial_of(path).write_bytes(data)
        publish(partial_of(path), path)
    except KnnSeqError:
        raise
    except OSError as error:
        raise KnnSeqError(f"{path} cannot be written: {error.strerror}.") from error


class _Run:
    """Translates the segments of one document, those with the same text once."""

    def __init__(
        self,
        translator: Translator,
        exact_matches: bool,
        placeholders: Sequence[str],
        changed: Changed,
        options: TranslateOptions,
    ) -> None:
        self.terms = self.cut = 0
        self._translator, self._exact, self._changed, self._options = translator, exact_matches, changed, options
        sentences = partial(sentence_starts, language=translator.model.source_language)
        self._protector = Protector(self._translated, placeholders, sentences, translator.attention)
        self._stored = StoredTranslations(translator, self._protector)
        self._known: dict[Content, tuple[Content, SegmentReport]] = {}

    def translate(self, segments: Sequence[Segment]) -> list[tuple[Content, SegmentReport]]:
        """The translation of each segment, and what became of it."""
        new = list(dict.fromkeys(segment.content for segment in segments if segment.content not in self._known))
        for content, stored in self._stored.find(new).items() if self._exact else ():
            origin = "exact" if stored.certain else "stored"
            self._known[content] = stored.content, SegmentReport("", join(content), join(stored.content), origin)
            new.remove(content)
        results = self._protector.translate(new)
        for content, result, share in zip(new, results, self._shares(results), strict=True):
            origin = "unchanged" if result.untranslated else "neighbours" if share else "model"
            self._known[content] = (
                result.content,
                SegmentReport("", join(content), join(result.content), origin, share, result.repaired),
            )
        made = []
        for segment in segments:
            content, report = self._known[segment.content]
            made.append((content, replace(report, key=segment.key)))
        return made

    def _translated(self, texts: list[str]) -> list[Translation]:
        return self._translator.translate(texts, **self._options) if texts else []

    def _shares(self, results: Sequence[Protected]) -> list[float | None]:
        """The share of each translation's tokens that neighbours decided; None if they were not asked."""
        used = [text for result in results for text in result.used if isinstance(text, Translation)]
        self.cut += sum(text.source_cut for text in used)
        self.terms += sum(use.applied for text in used for use in getattr(text, "terms", ()))
        settings, _ = self._translator.settings(self._options)
        if not settings.weight:
            return [None] * len(results)
        flags = iter(self._changed(self._translator, used, **self._options))
        shares: list[float | None] = []
        for result in results:
            changed = [flag for text in result.used if isinstance(text, Translation) for flag in next(flags)]
            shares.append(sum(changed) / len(changed) if changed else None)
        return shares
