"""The files of a corpus as people name them: files, folders, standard input; and which format each is of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from knn_seq.corpus.base import CORPUS_FORMATS, CorpusReader
from knn_seq.errors import InvalidSetting, NotFound

# Formats that are met where parallel text is, and that a name tells: they are refused by their name.
UNKNOWN_SUFFIXES = (".docx", ".xlsx", ".csv", ".parquet")


def find_files(paths: Sequence[Path], format: str | None) -> list[Path]:
    """Every path, and in the place of a folder the files in it, each once.

    A folder stands for the files of known formats in it, at any depth and sorted by name, unless it is itself of a
    format.  Hidden ones are left out.

    Args:
        paths: Files and folders.
        format: The only one to look for in folders; None: any.
    """
    formats = [format] if format is not None else CORPUS_FORMATS.names()
    kinds = [kind for kind in map(CORPUS_FORMATS.get, formats) if kind.files == 1]
    found: dict[Path, Path] = {}
    for path in paths:
        of_folder = any(kind.reads_folder for kind in kinds) if format is not None else _recognised(path, kinds)
        files = list(_files_in(path, kinds)) if path.is_dir() and not of_folder else [path]
        if not files:
            known = sorted({suffix for kind in kinds for suffix in kind.suffixes})
            raise NotFound(f"There is no corpus in the folder {path}: no file in it ends with {', '.join(known)}.")
        for file in files:
            found.setdefault(file.resolve(), file)
    return list(found.values())


def format_of(paths: Sequence[Path]) -> str:
    """The format that the names of the files tell: of one file, or of a source file and a target file."""
    for path in paths:
        if not path.exists():
            raise NotFound(f"There is no file {path}.")
    kinds = {name: CORPUS_FORMATS.get(name) for name in CORPUS_FORMATS.names()}
    fitting = {name: kind for name, kind in kinds.items() if kind.files == len(paths)}
    for name, kind in fitting.items():
        if all(map(kind.recognises, paths)):
            return name
    choice = f"give one of {', '.join(fitting)} as the format (--format)"
    for path in paths:
        suffix = Path(path.name.lower().removesuffix(".gz")).suffix
        if suffix in UNKNOWN_SUFFIXES:
            raise InvalidSetting(f"There is no reader of {suffix} files such as {path}: convert it, or {choice}.")
    if len(paths) == 2:
        return "text"
    raise InvalidSetting(f"The name of {paths[0]} does not tell its format: {choice}.")


def _files_in(folder: Path, kinds: Sequence[type[CorpusReader]]) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if _recognised(path, kinds):
            yield path
        elif path.is_dir() and not path.is_symlink():
            yield from _files_in(path, kinds)


def _recognised(path: Path, kinds: Sequence[type[CorpusReader]]) -> bool:
    return any(kind.recognises(path) and kind.reads_folder == path.is_dir() for kind in kinds)
