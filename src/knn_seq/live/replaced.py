"""Which sentence pairs of a datastore those of a corpus take the place of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from knn_seq.corpus import BadPair, Corpus, SentencePair
from knn_seq.live.lookup import Lookup


class Replaced(NamedTuple):
    """What an update deletes, and which ids its pairs take over."""

    numbers: NDArray[np.int64]  # of the sentence pairs that are deleted, sorted
    ids: Mapping[int, str]  # of pairs of the corpus that have none of their own, by their places in it

    @classmethod
    def nothing(cls) -> Replaced:
        """Nothing is deleted."""
        return cls(np.empty(0, np.int64), {})

    def renamed(self, corpus: Corpus) -> Corpus:
        """The corpus with these ids."""
        return _RenamedCorpus(corpus, self.ids) if self.ids else corpus


def replaced_by(corpus: Corpus, lookup: Lookup) -> Replaced:
    """The pairs with the id of a pair of the corpus or, if there is none, those with its source.

    A pair without an id of its own takes that of the first one that it replaces, so that ids are stable.
    """
    units = [(place, unit) for place, unit in enumerate(corpus) if isinstance(unit, SentencePair)]
    by_id = lookup.by_id({unit.id for _, unit in units if unit.id is not None})
    others = [(place, unit) for place, unit in units if unit.id not in by_id]
    by_source = lookup.by_source({unit.source for _, unit in others})
    numbers = {number for found in (*by_id.values(), *by_source.values()) for number in found}
    ids: dict[int, str] = {}
    free = {source: [lookup.store.pairs[number].id for number in found] for source, found in by_source.items()}
    for place, unit in others:
        if unit.id is None and free.get(unit.source):
            ids[place] = free[unit.source].pop(0)
    return Replaced(np.array(sorted(numbers), np.int64), ids)


class _RenamedCorpus(Corpus):
    """A corpus some of whose pairs have other ids."""

    def __init__(self, corpus: Corpus, ids: Mapping[int, str]) -> None:
        super().__init__(corpus.format, corpus.reader)
        self.ids = ids

    def pairs(self, start: int = 0) -> Iterator[SentencePair | BadPair]:
        """See `Corpus.pairs`."""
        for place, unit in enumerate(super().pairs(start), start):
            named = isinstance(unit, SentencePair) and place in self.ids
            yield unit._replace(id=self.ids[place]) if named and isinstance(unit, SentencePair) else unit
