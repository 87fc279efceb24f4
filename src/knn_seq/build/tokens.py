"""Sentence pairs to tokens, in several processes once there are enough of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from knn_seq.corpus import BadPair, SentencePair
from knn_seq.corpus.pair import TOO_LONG
from knn_seq.models import PairTokenizer, UnknownToken

UNITS_PER_CHUNK = 2048
CHUNKS_BEFORE_WORKERS = 12  # processes take seconds to start: a small corpus is done by then


class TokenChunk(NamedTuple):
    """Some sentence pairs of a corpus, tokenized."""

    pairs: list[SentencePair]
    sources: tuple[NDArray[np.int32], NDArray[np.int64]]  # tokens in a row, and the length of each sentence
    targets: tuple[NDArray[np.int32], NDArray[np.int64]]
    bad: list[BadPair]

    @property
    def units(self) -> int:
        """How many pairs these were, good and bad."""
        return len(self.pairs) + len(self.bad)

    def count_unknown(self, unknown: UnknownToken) -> dict[str, int]:
        """How many tokens of each side are unknown ones."""
        sides = {"source": (self.sources[0], unknown.source), "target": (self.targets[0], unknown.target)}
        return {
            side: int(np.count_nonzero(tokens == token)) for side, (tokens, token) in sides.items() if token is not None
        }


def tokenize(
    units: Iterable[SentencePair | BadPair], tokenizer: PairTokenizer, max_length: int, workers: int
) -> Iterator[TokenChunk]:
    """Tokenize a stream of sentence pairs; memory does not grow with its length, and the order stays.

    Args:
        units: The corpus, pair by pair.
        tokenizer: The model's.
        max_length: Pairs with more tokens on one side become bad ones.
        workers: How many processes; with 1 there are none but this.
    """
    chunks = _chunks(units)
    ahead = list(islice(chunks, CHUNKS_BEFORE_WORKERS + 1)) if workers > 1 else []
    if len(ahead) <= CHUNKS_BEFORE_WORKERS:
        for chunk in (*ahead, *chunks) if workers > 1 else chunks:
            yield _tokenize_chunk(chunk, tokenizer, max_length)
    else:
        yield from _in_processes((chunk for part in (ahead, chunks) for chunk in part), tokenizer, max_length, workers)


def _chunks(units: Iterable[SentencePair | BadPair]) -> Iterator[list[SentencePair | BadPair]]:
    stream = iter(units)
    while chunk := list(islice(stream, UNITS_PER_CHUNK)):
        yield chunk


def _in_processes(
    chunks: Iterator[list[SentencePair | BadPair]], tokenizer: PairTokenizer, max_length: int, workers: int
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


def _tokenize_here(chunk: list[SentencePair | BadPair], max_length: int) -> TokenChunk:
    assert _tokenizer is not None
    return _tokenize_chunk(chunk, _tokenizer, max_length)


def _tokenize_chunk(chunk: list[SentencePair | BadPair], tokenizer: PairTokenizer, max_length: int) -> TokenChunk:
    tokens = _encoded([unit for unit in chunk if isinstance(unit, SentencePair)], tokenizer)
    pairs: list[SentencePair] = []
    sources: list[Sequence[int]] = []
    targets: list[Sequence[int]] = []
    bad: list[BadPair] = []
    for unit in chunk:
        if isinstance(unit, BadPair):
            bad.append(unit)
            continue
        source, target = next(tokens)
        if max(len(source), len(target)) > max_length:
            bad.append(BadPair(unit.place, TOO_LONG))
        else:
            pairs.append(unit)
            sources.append(source)
            targets.append(target)
    return TokenChunk(pairs, _flat(sources), _flat(targets), bad)


def _encoded(pairs: list[SentencePair], tokenizer: PairTokenizer) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
    """Source and target tokens of each pair: its own, or those of its text."""
    plain = [pair for pair in pairs if pair.source_tokens is None or pair.target_tokens is None]
    sources = iter(tokenizer.encode_sources([pair.source for pair in plain]) if plain else ())
    targets = iter(tokenizer.encode_targets([pair.target for pair in plain]) if plain else ())
    for pair in pairs:
        if pair.source_tokens is None or pair.target_tokens is None:
            yield next(sources), next(targets)
        else:
            yield pair.source_tokens, pair.target_tokens


def _flat(sequences: list[Sequence[int]]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
    return np.fromiter((token for tokens in sequences for token in tokens), np.int32, int(lengths.sum())), lengths
