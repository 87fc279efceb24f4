from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from knn_seq.models import Source
from knn_seq.storage import Segment


class StoredSources(Sequence[Source]):
    """The source sentences of a segment."""

    def __init__(self, segment: Segment) -> None:
        self.texts, self.tokens = segment.texts, segment.sources

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: Any) -> Any:
        return Source(self.texts[index][0], self.tokens[index].tolist())
