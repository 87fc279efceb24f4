"""Sentence pairs to tokens, in several processes once there are enough of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from knn_seq.corpus import BadLine, SentencePair
from knn_seq.corpus.pair import TOO_LONG
from knn_seq.models import PairTokenizer

LINES_PER_CHUNK = 2048
CHUNKS_BEFORE_WORKERS = 12  # processes take seconds to start: a small corpus is done by then


class TokenChunk(NamedTuple):
    """Some lines of a corpus, tokenized."""

    pairs: list[SentencePair]
    sources: tuple[NDArray[np.int32], NDArray[np.int64]]  # tokens in a row, and the length of each sentence
    targets: tuple[NDArray[np.int32], NDArray[np.int64]]
    bad: list[BadLine]

    @property
    def lines(self) -> int:
        """How many lines these were."""
        return len(self.pairs) + len(self.bad)


def tokenize(
    lines: Iterable[SentencePair | BadLine], tokenizer: PairTokenizer, max_length: int, workers: int
) -> Iterator[TokenChunk]:
    """Tokenize a stream of lines; memory does not grow with its length, and the order stays.

    Args:
        lines: The corpus.
        tokenizer: The model's.
        max_length: Pairs with more tokens on one side become bad lines.
        workers: How many processes; with 1 there are none but this.
    """
    chunks = _chunks(lines)
    ahead = list(islice(chunks, CHUNKS_BEFORE_WORKERS + 1)) if workers > 1 else []
    if len(ahead) <= CHUNKS_BEFORE_WORKERS:
        for chunk in (*ahead, *chunks) if workers > 1 else chunks:
            yield _tokenize_chunk(chunk, tokenizer, max_length)
    else:
        yield from _in_processes((chunk for part in (ahead, chunks) for chunk in part), tokenizer, max_length, workers)


def _chunks(lines: Iterable[SentencePair | BadLine]) -> Iterator[list[SentencePair | BadLine]]:
    stream = iter(lines)
    while chunk := list(islice(stream, LINES_PER_CHUNK)):
        yield chunk


def _in_processes(
    chunks: Iterator[list[SentencePair | BadLine]], tokenizer: PairTokenizer, max_length: int, workers: int
) -> Iterator[TokenChunk]:
    # loky starts processes that neither inherit this one's threads nor run the user's script again.
    from loky import ProcessPoolExecutor

    with ProcessPoolExecutor(workers, initializer=_set_tokenizer, initargs=(tokenizer,)) as pool:
        waiting: deque[Future[Any]] = deque()
        for chunk in chunks:
            waiting.append(pool.submit(_tokenize_here, chunk, max_length))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


_tokenizer: PairTokenizer | None = None


def _set_tokenizer(tokenizer: PairTokenizer) -> None:
    global _tokenizer
    _tokenizer = tokenizer


def _tokenize_here(chunk: list[SentencePair | BadLine], max_length: int) -> TokenChunk:
    assert _tokenizer is not None
    return _tokenize_chunk(chunk, _tokenizer, max_length)


def _tokenize_chunk(chunk: list[SentencePair | BadLine], tokenizer: PairTokenizer, max_length: int) -> TokenChunk:
    pairs = [line for line in chunk if isinstance(line, SentencePair)]
    bad = [line for line in chunk if isinstance(line, BadLine)]
    if pairs and pairs[0].source_tokens is None:
        sources = tokenizer.encode_sources([pair.source for pair in pairs])
        targets = tokenizer.encode_targets([pair.target for pair in pairs])
    else:  # the corpus was tokenized before, all of it
        sources = [list(pair.source_tokens or ()) for pair in pairs]
        targets = [list(pair.target_tokens or ()) for pair in pairs]
    fits = [len(s) <= max_length and len(t) <= max_length for s, t in zip(sources, targets, strict=True)]
    bad += [BadLine(pair.line, TOO_LONG) for pair, fit in zip(pairs, fits, strict=True) if not fit]
    return TokenChunk(
        [pair for pair, fit in zip(pairs, fits, strict=True) if fit],
        _flat([tokens for tokens, fit in zip(sources, fits, strict=True) if fit]),
        _flat([tokens for tokens, fit in zip(targets, fits, strict=True) if fit]),
        sorted(bad, key=lambda line: line.line),
    )


def _flat(sequences: list[list[int]]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
    return np.fromiter((token for tokens in sequences for token in tokens), np.int32, int(lengths.sum())), lengths
