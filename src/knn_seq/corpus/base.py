from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from knn_seq.corpus.files import require_file, require_folder
from knn_seq.corpus.pair import BadPair, SentencePair
from knn_seq.errors import InvalidSetting
from knn_seq.registry import Option, Registry, check_options

MOST_COLUMNS = 5  # source, target, id, corpus, date


class CorpusReader(ABC):
    """A format: how the sentence pairs of its files are found, one after the other.

    Args:
        paths: As many files as the format reads side by side, or its folder.
        columns: Where source and target are found, if not in the format's usual place; then id, corpus and date.
        options: Values of those that `options` declares.
    """

    suffixes: ClassVar[tuple[str, ...]] = ()  # file names of this format end so, ".gz" put aside
    files: ClassVar[int] = 1  # how many files are read side by side: one with both sides, or one for each
    reads_folder: ClassVar[bool] = False  # its path is a folder and no file
    default_columns: ClassVar[tuple[int | str, ...]] = ()
    options: ClassVar[Mapping[str, Option]] = {}  # those of its own, beside the columns

    def __init__(
        self,
        paths: Sequence[Path],
        columns: Sequence[int | str] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.paths, self.columns = tuple(paths), tuple(columns or self.default_columns)
        if self.columns and not self.default_columns:
            raise InvalidSetting("A corpus of this format has no columns to choose from: leave the option out.")
        if self.columns and not 2 <= len(self.columns) <= MOST_COLUMNS:
            wanted = " and ".join(map(str, self.default_columns))
            raise InvalidSetting(
                f"Give two columns, of the source and of the target, such as {wanted}, and behind them those of id, "
                "corpus and date, if there are any."
            )
        defaults = {name: option.default for name, option in self.options.items()}
        owner = f"The corpus reader {type(self).__name__}"
        self.option_values = {**defaults, **check_options(owner, self.options, options or {})}
        for path in self.paths:
            (require_folder if self.reads_folder else require_file)(path)

    @classmethod
    def recognises(cls, path: Path) -> bool:
        """Whether a file or a folder, as far as can be seen without reading it, is of this format."""
        return bool(cls.suffixes) and path.name.lower().removesuffix(".gz").endswith(cls.suffixes)

    @abstractmethod
    def pairs(self, start: int = 0) -> Iterator[SentencePair | BadPair]:
        """Stream the sentence pairs, and in their places the bad ones.

        Args:
            start: How many of them, good and bad, to pass over: an interrupted build resumes in the middle.
        """

    def prefer_languages(self, source: str | None, target: str | None) -> None:  # noqa: B027 - most have no choice
        """Get to know which languages the pairs are for, before they are read, where no options say it.

        Args:
            source: As a model names it: pt, por_Latn, pt_XX; None: it is not known.
            target: The same.
        """

    def bind(self, model: Any) -> None:  # noqa: B027 - most readers need not know it
        """Get to know the model that the pairs are for, before they are read; raise if they don't fit it.

        Args:
            model: A `Model`.
        """

    def model_options(self) -> dict[str, Any]:
        """Fields of `ModelSettings` that the corpus tells, where the user gives none."""
        return {}

    def inferred(self) -> dict[str, Any]:
        """What nobody gave and the reader found out, to be recorded with the corpus and compared when it is resumed."""
        return {}

    def why_unknown(self) -> str | None:
        """For a corpus that brings its own tokens: why many may be unknown, and what to do; None: they are of text."""
        return None

    def content_files(self) -> Sequence[Path]:
        """The files that hold the sentence pairs."""
        return self.paths

    def describe(self) -> str:
        """The corpus in a few words."""
        where = f" ({', '.join(map(str, self.columns))})" if self.columns != self.default_columns else ""
        return " and ".join(path.name for path in self.paths) + where


CORPUS_FORMATS: Registry[CorpusReader] = Registry(CorpusReader, "corpus", "corpus format")  # type: ignore[type-abstract]
