from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from knn_seq.models import Source
from knn_seq.storage import DatastoreFolder


class StoredSources(Sequence[Source]):
    """The source sentences of a datastore."""

    def __init__(self, folder: DatastoreFolder) -> None:
        self.texts, self.tokens = folder.texts, folder.sources

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: Any) -> Any:
        return Source(self.texts[index][0], self.tokens[index].tolist())
