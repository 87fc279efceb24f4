"""Sentences of other domains, which teach a combiner where neighbours are no help."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from knn_seq.corpus.files import require_file
from knn_seq.corpus.lines import read_lines
from knn_seq.errors import DamagedFile
from knn_seq.models import Model


def general_sentences(model: Model, path: str | Path | None = None) -> list[str]:
    """Source sentences of many domains: a file's, or the package's in the model's language, or none.

    Args:
        model: Says the language, if it knows.
        path: A text file, a sentence a line.
    """
    if path is not None:
        return _sentences_of(Path(path))
    language = (model.source_language or "").replace("_", "-").split("-")[0].lower()
    packaged = files("knn_seq.train") / f"general.{language}.txt"
    return packaged.read_text(encoding="utf-8").splitlines() if language and packaged.is_file() else []


def _sentences_of(path: Path) -> list[str]:
    """The lines of a file, gzipped or not, that have text."""
    require_file(path)
    try:
        lines = [line.decode().strip() for line in read_lines(path) if line is not None]
    except UnicodeDecodeError as error:
        raise DamagedFile(f"{path} is no UTF-8 text of general sentences: {error}.") from error
    sentences = [line for line in lines if line]
    if not sentences:
        raise DamagedFile(f"There is no sentence in {path}.")
    return sentences
