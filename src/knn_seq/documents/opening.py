"""A document from its file: of which format it is, and whether it is small enough to be one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from knn_seq.corpus.files import require_file
from knn_seq.documents.base import DOCUMENT_FORMATS, Document
from knn_seq.errors import InvalidSetting

LARGEST_FILE = 64 << 20  # bytes: a book has one


def open_document(
    path: str | Path,
    format: str | None = None,
    options: Mapping[str, Any] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Document:
    """Read a file to be translated.

    Args:
        path: The file.
        format: The format's name; None: told by the name of the file.
        options: Options that the format declares.
        defaults: Values for such of these options as the format has and nobody gave.
    """
    path = Path(path)
    kind = DOCUMENT_FORMATS.get(format) if format else require_known_format(path)
    require_file(path)
    size = path.stat().st_size
    if size > LARGEST_FILE:
        raise InvalidSetting(
            f"{path} has {size >> 20:,} MB, and a document may have {LARGEST_FILE >> 20}: split it, "
            "or translate it line by line from standard input."
        )
    known = {name: value for name, value in (defaults or {}).items() if name in kind.options and value is not None}
    return kind(path.read_bytes(), str(path), {**known, **(options or {})})


def require_known_format(path: Path) -> type[Document]:
    """The format that the name of a file tells; an `InvalidSetting` lists those there are."""
    name = path.name.lower()
    kinds = {known: DOCUMENT_FORMATS.get(known) for known in DOCUMENT_FORMATS.names()}
    for kind in kinds.values():
        if kind.suffixes and name.endswith(kind.suffixes):
            return kind
    formats = ", ".join(f"{known} ({' '.join(kind.suffixes)})" for known, kind in kinds.items())
    raise InvalidSetting(f"The name of {path} tells no format that can be translated; there are {formats} (--format).")
