"""The terms that are due in the sentences of a batch, as a model reads and writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from knn_seq.decoding.piece_trie import PieceTrie
from knn_seq.glossary import Occurrence, TermCheck, TermFinder
from knn_seq.glossary.function_words import is_function_word
from knn_seq.glossary.occurrences import capitalised
from knn_seq.models import PairTokenizer, Source
from knn_seq.models.token_spans import common_length

_ENDED = re.compile(r"[.!?…]['\"”’)\]]*$")


@dataclass
class DueTerms:
    """The terms of one source.

    Args:
        occurrences: Those of the source.
        check: Tells which of them a text has.
        spans: For each the source tokens that hold it, from and to; None: not known.
        capitals: The source begins with a large letter.
        pushed: Those that are pushed when the model looks at them; the others come by themselves; None: all.
    """

    occurrences: Sequence[Occurrence]
    check: TermCheck
    spans: Sequence[tuple[int, int] | None]
    capitals: bool
    pushed: frozenset[int] | None = None
    locked: LockedPrefix | None = None  # of a sentence that is decoded again
    banned: list[list[int]] = field(default_factory=list)  # sequences of tokens that must not be written

    def is_pushed(self, occurrence: int) -> bool:
        """Whether an occurrence is written when the model looks at it."""
        wanted = self.pushed is None or occurrence in self.pushed
        return wanted and bool(self.occurrences[occurrence].target)

    def pushed_spans(self) -> Iterator[tuple[int, tuple[int, int]]]:
        """The occurrences that are pushed and the source tokens that hold them."""
        for number, span in enumerate(self.spans):
            if span is not None and self.is_pushed(number):
                yield number, span

    def starts_sentence(self, text: str) -> bool:
        """Whether what is written behind a text begins with a large letter."""
        return self.ends_sentence(text) if text else self.capitals

    @staticmethod
    def ends_sentence(text: str) -> bool:
        """Whether a text ends with the mark that ends a sentence."""
        return bool(_ENDED.search(text))


@dataclass(frozen=True)
class LockedPrefix:
    """Where a sentence that is decoded again is free: behind the first term that it lacked."""

    tokens: tuple[int, ...]  # that come first
    occurrence: int  # the term that comes behind them


class TermTokens:
    """Terms as tokens of a model.

    Args:
        tokenizer: Of the model.
    """

    def __init__(self, tokenizer: PairTokenizer) -> None:
        self.tokenizer = tokenizer
        self._encoded: dict[str, list[int]] = {}  # without the end
        self._tries: dict[tuple[tuple[str, ...], str, bool], PieceTrie] = {}
        self._any_case: dict[tuple[tuple[str, ...], bool], PieceTrie] = {}
        self._forms: dict[tuple[int, tuple[str, ...], bool], bool] = {}
        self._function_tokens: dict[tuple[int, str | None], bool] = {}

    def due(self, sources: Sequence[Source], finder: TermFinder) -> list[DueTerms | None]:
        """The terms of each source that it has in the part that the model reads; None: it has none."""
        found = [finder.find(source.text) for source in sources]
        # What stands before a term and up to its end is tokenized as in the complete source.
        cuts = [
            source.text[:place]
            for source, occurrences in zip(sources, found, strict=True)
            for one in occurrences
            for place in (one.start, one.end)
        ]
        encoded = iter(self.tokenizer.encode_sources(cuts) if cuts else [])
        forms = {form for occurrences in found for one in occurrences for form in one.target_forms}
        if new := forms - self._encoded.keys():
            self._encode([text for form in new for text in (form, f"{form} {form}")])  # at once costs less
        due: list[DueTerms | None] = []
        for source, occurrences in zip(sources, found, strict=True):
            if not occurrences:
                due.append(None)
                continue
            spans: list[tuple[int, int] | None] = []
            for _ in occurrences:
                begin, end = common_length(source.tokens, next(encoded)), common_length(source.tokens, next(encoded))
                spans.append((begin, end) if begin < end else None)
            first = next((letter for letter in source.text if letter.isalpha()), "")
            due.append(DueTerms(occurrences, finder.check(occurrences), spans, first.isupper()))
        return due

    def trie(self, occurrence: Occurrence, before: str, capital: bool) -> PieceTrie:
        """The pieces of everything that may be written for a term.

        Args:
            occurrence: The term.
            before: What stands before it: nothing, a space, or a mark of punctuation.
            capital: It begins a sentence.
        """
        forms = occurrence.target_forms
        key = (forms, before, capital)
        if key not in self._tries:
            self._tries[key] = PieceTrie(self.pieces(form, before, capital) for form in forms)
        return self._tries[key]

    def any_case(self, occurrence: Occurrence, begins: bool) -> PieceTrie:
        """The pieces of a term behind a space, or where a text begins, with a small or a large first letter."""
        key = (occurrence.target_forms, begins)
        if key not in self._any_case:
            exact = any(term.case_sensitive for term in occurrence.terms)
            first = {form if exact else form[:1].lower() + form[1:] for form in occurrence.target_forms}
            forms = {*occurrence.target_forms, *first, *map(capitalised, occurrence.target_forms)}
            self._any_case[key] = PieceTrie(self.pieces(form, "" if begins else " ", False) for form in forms)
        return self._any_case[key]

    def is_form(self, token: int, terms: DueTerms, occurrence: int) -> bool:
        """Whether a token alone is a form of a term."""
        one = terms.occurrences[occurrence]
        key = (token, one.target_forms, one.terms[0].case_sensitive)
        if key not in self._forms:
            self._forms[key] = terms.check.has(self.tokenizer.decode([token]), occurrence)
        return self._forms[key]

    def is_function_token(self, token: int, language: str | None) -> bool:
        """Whether a token alone is a function word of the target language."""
        if (token, language) not in self._function_tokens:
            text = self.tokenizer.decode([token]).strip()
            self._function_tokens[token, language] = bool(text) and is_function_word(text, language)
        return self._function_tokens[token, language]

    def pieces(self, form: str, before: str, capital: bool) -> list[int]:
        """The tokens of a form without an end; what stands before a word may change them.

        Args:
            form: The form.
            before: Nothing, a space, or a mark of punctuation.
            capital: It begins a sentence.
        """
        form = capitalised(form) if capital else form
        if before in ("", " "):
            alone, longer = self._encode([form, f"{form} {form}"])
            shorter = alone if before else []
        else:
            alone, shorter, longer = self._encode([form, before, before + form])
        behind = longer[len(shorter) :]
        return alone if not before or longer[: len(shorter)] != shorter or not behind else behind

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each text without the end."""
        unknown = [text for text in dict.fromkeys(texts) if text not in self._encoded]
        if unknown:
            encoded = self.tokenizer.encode_targets(unknown)
            self._encoded |= {text: tokens[:-1] for text, tokens in zip(unknown, encoded, strict=True)}
        return [self._encoded[text] for text in texts]
