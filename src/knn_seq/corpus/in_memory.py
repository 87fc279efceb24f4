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
        self._units = tuple(_unit(number, pair) for number, pair in enumerate(pairs, 1))

    def pairs(self, start: int = 0) -> Iterator[SentencePair | BadPair]:
        """Every pair but for the first `start`."""
        return islice(self._units, start, None)

    def inferred(self) -> dict[str, Any]:
        """A hash of the content, which stands for the files."""
        digest = hashlib.sha256()
        for unit in self._units:
            digest.update(json.dumps(unit._replace(place="")).encode() + b"\n")
        return {"pairs": len(self._units), "sha256": digest.hexdigest()}

    def describe(self) -> str:
        """How many there are."""
        return f"{len(self._units):,} sentence pair{'' if len(self._units) == 1 else 's'}"


def _unit(number: int, pair: Any) -> SentencePair | BadPair:
    if isinstance(pair, SentencePair):
        return pair
    if isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(text, str) for text in pair):
        return make_pair(pair[0], pair[1], f"pair {number}")
    raise InvalidSetting(f"A corpus in memory is a sequence of pairs of texts, which pair {number} is not: {pair!r}.")
