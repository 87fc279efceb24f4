"""A translation memory: sentence pairs to translate with before anything was built from them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from knn_seq.corpus import CorpusLike, SentencePair, open_corpus
from knn_seq.errors import DamagedFile, InvalidSetting
from knn_seq.models import PairTokenizer, TokenPair
from knn_seq.runtime.wording import count
from knn_seq.storage.pairs import PairInfo

log = logging.getLogger(__name__)

POSITIONS = 1 << 20  # of a sentence, in the numbers of entries


class TranslationMemory:
    """The sentence pairs of a corpus, in memory.

    It stands where a datastore stands when there is none.  Entry p of sentence s has the number s · 2²⁰ + p.

    Args:
        texts: Source and target text of each sentence pair.
        name: What people know it by.
        pairs: Id, corpus and date of each sentence pair; None: they are numbered.
    """

    def __init__(
        self,
        texts: Sequence[tuple[str, str]],
        name: str = "sentence pairs",
        pairs: Sequence[PairInfo] | None = None,
    ) -> None:
        if not texts:
            raise InvalidSetting("There is no sentence pair in the translation memory.")
        self.texts, self.name = texts, name
        self.pairs = pairs or [PairInfo(str(number), name, "") for number in range(1, len(texts) + 1)]

    @classmethod
    def open(
        cls,
        corpus: CorpusLike | None = None,
        source: str | Path | None = None,
        target: str | Path | None = None,
        columns: Sequence[int | str] | None = None,
        format: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> TranslationMemory:
        """Read a corpus, which is given as to `open_corpus`; bad sentence pairs are left out."""
        opened = open_corpus(corpus, source, target, columns, format, options)
        texts: list[tuple[str, str]] = []
        pairs: list[PairInfo] = []
        rejected: Counter[str] = Counter()
        for unit in opened:
            if isinstance(unit, SentencePair):
                texts.append((unit.source, unit.target))
                name, number = unit.corpus or opened.describe(), str(len(texts))
                pairs.append(PairInfo(unit.id or number, name, unit.date or ""))
            else:
                rejected[unit.reason] += 1
        reasons = ", ".join(f"{number:,} {reason}" for reason, number in rejected.items())
        if not texts:
            raise DamagedFile(f"There is no usable sentence pair in {opened.describe()} ({reasons or 'it is empty'}).")
        if rejected:
            log.info("Left out: %s (%s).", count(rejected.total(), "sentence pair"), reasons)
        return cls(texts, opened.describe(), pairs)

    def token_pairs(self, numbers: Sequence[int], tokenizer: PairTokenizer) -> list[TokenPair]:
        """Some of the sentence pairs as a model sees them."""
        texts = [self.texts[number] for number in numbers]
        if not texts:
            return []
        sources = tokenizer.encode_sources([source for source, _ in texts])
        targets = tokenizer.encode_targets([target for _, target in texts])
        return [TokenPair(source, target) for source, target in zip(sources, targets, strict=True)]

    def locate(self, entries: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The sentence pair of each entry and its place in the target, both in the same shape; -1 for no entry."""
        ids = np.asarray(entries, np.int64)
        return np.where(ids < 0, -1, ids // POSITIONS), np.where(ids < 0, -1, ids % POSITIONS)

    def live_sentences(self) -> NDArray[np.int64]:
        """The numbers of all sentence pairs: nothing is deleted."""
        return np.arange(len(self.texts))

    def live_texts(self) -> Sequence[tuple[str, str]]:
        """Source and target text of each sentence pair."""
        return self.texts

    def __len__(self) -> int:
        """The number of sentence pairs."""
        return len(self.texts)
