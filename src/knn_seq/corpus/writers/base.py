from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import BinaryIO

from knn_seq.corpus.pair import SentencePair
from knn_seq.registry import Registry


class PairWriter(ABC):
    """A format that sentence pairs are written in, with their ids, corpora and dates; its reader reads them back."""

    @abstractmethod
    def write(
        self, pairs: Iterable[SentencePair], stream: BinaryIO, source_lang: str | None, target_lang: str | None
    ) -> None:
        """Write a complete file, pair by pair as they come.

        Args:
            pairs: The sentence pairs.
            stream: Where to, such as `sys.stdout.buffer`; it stays open.
            source_lang: The language of the sources, for formats that name it.
            target_lang: The language of the targets.
        """


PAIR_WRITERS: Registry[PairWriter] = Registry(PairWriter, "corpus.writers", "format to write")  # type: ignore[type-abstract]
