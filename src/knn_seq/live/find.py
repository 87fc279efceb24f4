"""What is in a datastore: all of it, or the sentence pairs that share words with a text, best first."""

from __future__ import annotations

import heapq
import unicodedata
from collections import Counter
from collections.abc import Iterator

from knn_seq.corpus import SentencePair
from knn_seq.sentences.postings import LENGTH_SHARE, SATURATION, inverse_document_frequency
from knn_seq.sentences.words import words
from knn_seq.storage import DatastoreFolder


def live_pairs(store: DatastoreFolder, corpus: str | None = None) -> Iterator[SentencePair]:
    """All sentence pairs that are not deleted, in their order.

    Args:
        store: The datastore.
        corpus: Only those that came from the corpus of that name.
    """
    for number in store.live_sentences().tolist():
        if corpus is None or store.pairs[number].corpus == corpus:
            yield pair_of(store, number)


def find_pairs(
    store: DatastoreFolder, text: str, limit: int | None = 10, corpus: str | None = None
) -> list[SentencePair]:
    """The sentence pairs whose source or target shares words with a text, best first by BM25.

    Args:
        store: The datastore.
        text: The words.
        limit: How many at most; None: all.
        corpus: Only those that came from the corpus of that name.
    """
    wanted = set(words(text))
    if not wanted:
        return []
    live = store.live_sentences()
    found: list[tuple[int, Counter[str], int]] = []
    having: Counter[str] = Counter()
    letters = 0
    for number in live.tolist():
        both = " ".join(store.texts[number])
        letters += len(both)
        plain = both if unicodedata.is_normalized("NFKC", both) else unicodedata.normalize("NFKC", both)
        plain = plain.casefold()
        if any(word in plain for word in wanted):  # far cheaper than to look for words in every sentence
            times = Counter(word for word in words(both) if word in wanted)
            if times:
                found.append((number, times, len(both)))
                having.update(times.keys())
    mean = letters / max(len(live), 1)
    rarity = {word: inverse_document_frequency(having[word], len(live)) for word in having}
    scored = []
    for number, times, length in found:
        if corpus is None or store.pairs[number].corpus == corpus:
            penalty = SATURATION * (1 - LENGTH_SHARE + LENGTH_SHARE * length / mean)
            score = sum(rarity[word] * count / (count + penalty) for word, count in times.items())
            scored.append((-score, number))
    best = sorted(scored) if limit is None else heapq.nsmallest(limit, scored)
    return [pair_of(store, number) for _, number in best]


def pair_of(store: DatastoreFolder, number: int) -> SentencePair:
    """A sentence pair with its id, corpus and date."""
    source, target = store.texts[number]
    info = store.pairs[number]
    return SentencePair(source, target, f"pair {number + 1}", id=info.id, corpus=info.corpus, date=info.date)
