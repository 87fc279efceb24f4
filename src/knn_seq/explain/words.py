"""Tokens joined to the words that a person reads."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from knn_seq.models import PairTokenizer
from knn_seq.models.token_spans import is_special, output_spans, written_end

# Scripts that put no space between words: there a word is what a token is.
UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff]")


class Word(NamedTuple):
    """A word, a run of punctuation or a run of spaces."""

    text: str
    tokens: list[int]  # the places of its tokens in the sentence; none for spaces


def words_of(text: str, tokens: Sequence[int], tokenizer: PairTokenizer) -> list[Word]:
    """The words of a text with the tokens that wrote them; their texts, joined, are the text.

    Where a token ends in the text is found by decoding what stands before it, so it does not matter how a vocabulary
    marks the beginnings or ends of words.  Special tokens, which write nothing, belong to no word.

    Args:
        text: What the tokens decode to.
        tokens: The target tokens.
        tokenizer: The model's.
    """
    spans = list(output_spans(text, tokens, tokenizer))
    cuts = _cuts(text, {end for _, _, end in spans})
    words = []
    for start, stop in pairwise(cuts):
        written = [place for place, begin, end in spans if begin < stop and start < end]
        words.append(Word(text[start:stop], [] if text[start:stop].isspace() else written))
    return words


def around_word(text: str, tokens: Sequence[int], place: int, tokenizer: PairTokenizer) -> tuple[str, str, str]:
    """The text before the word of one token, the word, and the text after it; for a special token the word is empty.

    Args:
        text: What the tokens decode to.
        tokens: The target tokens.
        place: Of the token among them.
        tokenizer: The model's.
    """
    begin, end = (written_end(text, tokens[:count], tokenizer) for count in (place, place + 1))
    if is_special(tokens[place], tokenizer):
        return text[:begin], "", text[begin:]
    begin += len(text[begin:]) - len(text[begin:].lstrip())
    end = max(end, begin)
    cuts = _cuts(text, {begin, end})
    start = max(cut for cut in cuts if cut <= begin)
    stop = min(cut for cut in cuts if cut >= end and (cut > start or cut == len(text)))
    return text[:start], text[start:stop], text[stop:]


def _cuts(text: str, ends: set[int]) -> list[int]:
    """Where words begin and end, given where tokens end."""
    return sorted({0, len(text), *_edges(text), *(end for end in ends if _unspaced(text, end))})


def _edges(text: str) -> Iterator[int]:
    """Where words begin and end, and where punctuation around them does."""
    for match in re.finditer(r"\S+", text):
        start, stop = match.span()
        yield from (start, stop)
        while start < stop and _is_punctuation(text[start]):
            start += 1
        while start < stop and _is_punctuation(text[stop - 1]):
            stop -= 1
        yield from (start, stop)


def _is_punctuation(character: str) -> bool:
    return unicodedata.category(character)[0] == "P"


def _unspaced(text: str, place: int) -> bool:
    """Whether a word may end at this place because its script has no spaces."""
    return 0 < place < len(text) and all(map(UNSPACED.match, text[place - 1 : place + 1]))
