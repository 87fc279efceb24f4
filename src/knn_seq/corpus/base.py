from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from knn_seq.errors import KnnSeqError
from knn_seq.registry import Registry


class CorpusReader(ABC):
    """A format: how a line of text becomes the two sides of a sentence pair.

    Args:
        columns: Where source and target are found, if not in the format's usual place.
    """

    suffixes: ClassVar[tuple[str, ...]] = ()  # file names of this format end so, ".gz" put aside
    files: ClassVar[int] = 1  # how many files are read side by side
    default_columns: ClassVar[tuple[int | str, ...]] = ()

    def __init__(self, columns: Sequence[int | str] | None = None) -> None:
        self.columns = tuple(columns or self.default_columns)
        if len(self.columns) != len(self.default_columns):
            wanted = " and ".join(map(str, self.default_columns))
            raise KnnSeqError(
                f"Give two columns, of the source and of the target, such as {wanted}."
                if wanted
                else "Text files have no columns to choose from: leave the option out."
            )

    @abstractmethod
    def parse(self, lines: Sequence[str]) -> tuple[str, str] | str:
        """Source and target of a line, or the reason why it has none.

        Args:
            lines: The same line of each file, without its end.
        """


CORPUS_FORMATS: Registry[CorpusReader] = Registry(CorpusReader, "corpus", "corpus format")  # type: ignore[type-abstract]
