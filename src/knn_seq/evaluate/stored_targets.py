"""Whether what is in the store comes out as it is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from knn_seq.storage.text import TextFile
from knn_seq.translator import Translator

SENTENCES = 30


@dataclass(frozen=True)
class StoredTargets:
    """How many of some stored sources a system translates exactly as the store has them."""

    reproduced: int
    sentences: int

    @property
    def share(self) -> float:
        """Of the stored targets that came out."""
        return self.reproduced / max(self.sentences, 1)

    def __str__(self) -> str:
        return f"{self.reproduced}/{self.sentences}"


def stored_sample(texts: Sequence[tuple[str, str]], sentences: int, seed: int = 0) -> list[str]:
    """Different sources at random out of a store.

    Args:
        texts: Source and target of each sentence pair.
        sentences: How many at most.
        seed: Of the choice.
    """
    order = np.random.default_rng(seed).permutation(len(texts))
    chosen: dict[str, None] = {}
    for number in order[: 4 * sentences].tolist():  # where most are repeated, fewer are enough
        if len(chosen) == sentences:
            break
        if texts[number][0].strip():
            chosen[texts[number][0]] = None
    return list(chosen)


def stored_targets(texts: Sequence[tuple[str, str]], sources: Sequence[str]) -> dict[str, set[str]]:
    """All targets that a store has for each of these sources."""
    if isinstance(texts, TextFile):
        return {source: {texts[number][1] for number in texts.with_source(source)} for source in sources}
    found: dict[str, set[str]] = {source: set() for source in sources}
    for source, target in texts:
        if source in found:
            found[source].add(target)
    return found


def reproduced(
    translator: Translator,
    settings: Mapping[str, Any],
    targets: Mapping[str, set[str]],
    on_progress: Callable[[int], None] | None = None,
) -> StoredTargets:
    """Translate stored sources, and count those that come out as one of their stored targets.

    A target counts as the model can write it: its vocabulary may not have every character, or know two spaces.

    Args:
        translator: The system's.
        settings: Of the system.
        targets: Of each source.
        on_progress: Called with the number of sentences after each batch.
    """
    tokenizer = translator.model.tokenizer
    outputs = translator.translate(list(targets), on_progress, **settings)
    count = 0
    for output, wanted in zip(outputs, targets.values(), strict=True):
        ordered = sorted(wanted)
        writable = {tokenizer.decode(tokens) for tokens in tokenizer.encode_targets(ordered)}
        count += output.text in wanted | writable
    return StoredTargets(count, len(targets))
