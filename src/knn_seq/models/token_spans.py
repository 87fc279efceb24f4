"""Which part of a text each of its tokens stands for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile

from knn_seq.models.base import PairTokenizer

Span = tuple[int, int]
"""Where something begins and ends in a text."""

_WORD = re.compile(r"\w+|[^\w\s]")


def output_spans(text: str, tokens: Sequence[int], tokenizer: PairTokenizer) -> Iterator[tuple[int, int, int]]:
    """Of each token that wrote something its place in the sentence, and where its text begins and ends."""
    begin, waiting = 0, []
    for place, token in enumerate(tokens):
        if is_special(token, tokenizer):
            continue
        end = written_end(text, tokens[: place + 1], tokenizer)
        waiting.append(place)
        if text[begin:end].strip():
            # Tokens that wrote nothing by themselves, such as the first bytes of a character, wrote this together.
            first = end - len(text[begin:end].lstrip())
            yield from ((each, first, end) for each in waiting)
            begin, waiting = end, []


def written_end(text: str, tokens: Sequence[int], tokenizer: PairTokenizer) -> int:
    """How far the first tokens of a text write it: as far as what they decode to agrees with it."""
    agreeing = takewhile(lambda pair: pair[0] == pair[1], zip(tokenizer.decode(list(tokens)), text, strict=False))
    return sum(1 for _ in agreeing)


def is_special(token: int, tokenizer: PairTokenizer) -> bool:
    """Whether a token writes nothing, such as the end of a sentence."""
    return not tokenizer.decode([token]).strip() and bool(tokenizer.token(token).strip("▁Ġ@ "))


def source_spans(text: str, tokens: Sequence[int], tokenizer: PairTokenizer) -> list[Span | None]:
    """Of each token of a source where the word, or the few words, that it is part of begins and ends in the text.

    What stands before a word is tokenized as in the complete source, whatever the vocabulary's pieces look like.
    Special tokens stand for nothing: None.

    Args:
        text: The source.
        tokens: Its tokens, as the model reads them.
        tokenizer: The model's.
    """
    words = [match.span() for match in _WORD.finditer(text)]
    special, *encoded = tokenizer.encode_sources(["", *(text[:end] for _, end in words)])
    done = common_length(tokens, special)
    last = len(tokens) - common_length(tokens[:done:-1], special[::-1])
    found: list[Span | None] = [None] * len(tokens)
    begin: int | None = None
    for (start, end), others in zip(words, encoded, strict=True):
        begin = start if begin is None else begin
        length = min(common_length(tokens, others), last)
        if length > done:
            found[done:length] = [(begin, end)] * (length - done)
            done, begin = length, None
    return found


def common_length(tokens: Sequence[int], others: Sequence[int]) -> int:
    """How many tokens two sequences have in common, from the first on."""
    length = 0
    for token, other in zip(tokens, others, strict=False):
        if token != other:
            break
        length += 1
    return length
