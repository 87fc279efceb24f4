from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from knn_seq.corpus import WindowReader
from knn_seq.errors import DamagedFile
from knn_seq.likelihood import Reference
from knn_seq.models import Model, Source


@dataclass(frozen=True)
class Text:
    """A text in windows, whose tokens are predicted."""

    references: list[Reference]
    stride: int
    context: int
    words: int  # of the complete text
    description: str

    @property
    def tokens(self) -> int:
        """How many are predicted."""
        return sum(len(reference.target) for reference in self.references)


def read_text(path: str | Path, model: Model, options: Mapping[str, Any] | None = None) -> Text:
    """A text file as a language model reads it.

    Args:
        path: The file, gzipped or not.
        model: The model.
        options: `stride` and `context`, in tokens; what is left out is chosen as for a datastore.
    """
    reader = WindowReader([Path(path)], None, options)
    reader.bind(model)
    references = [Reference(Source("", context), tokens) for context, tokens in reader.windows()]
    if not references:
        raise DamagedFile(f"There is no token to predict in {path}.")
    return Text(references, reader.stride, reader.context, reader.words(), reader.describe())
