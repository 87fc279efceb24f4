from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from knn_seq.corpus.base import CorpusReader
from knn_seq.corpus.pair import BadPair, SentencePair, make_pair
from knn_seq.errors import InvalidSetting


class InMemoryReader(CorpusReader):
    """Sentence pairs that are in memory already, in no file.

    Args:
        pairs: Pairs of texts, or sentence pairs that another corpus gave.
    """

    def __init__(self, pairs: Sequence[tuple[str, str]] | Sequence[SentencePair]) -> None:
        super().__init__(())
        self._pairs = tuple(pairs)
        for number, pair in enumerate(self._pairs, 1):
            if not isinstance(pair, SentencePair) and not _is_pair(pair):
                raise InvalidSetting(
                    f"A corpus in memory is a sequence of pairs of texts, which pair {number} is not: {pair!r}."
                )

    def pairs(self, start: int = 0) -> Iterator[SentencePair | BadPair]:
        """Every pair but for the first `start`."""
        for number, pair in enumerate(islice(self._pairs, start, None), start + 1):
            yield pair if isinstance(pair, SentencePair) else make_pair(pair[0], pair[1], f"pair {number}")

    def inferred(self) -> dict[str, Any]:
        """A hash of all texts stands for the files."""
        digest = hashlib.sha256()
        for pair in self._pairs:
            content = pair._replace(place="") if isinstance(pair, SentencePair) else pair
            digest.update(json.dumps(content).encode() + b"\n")
        return {"pairs": len(self._pairs), "sha256": digest.hexdigest()}

    def describe(self) -> str:
        """How many there are."""
        return f"{len(self._pairs):,} sentence pair{'' if len(self._pairs) == 1 else 's'}"


def _is_pair(pair: Any) -> bool:
    return isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(text, str) for text in pair)
