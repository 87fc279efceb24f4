"""Finding the subword codes of a checkpoint: where its options say, or under the names that people give them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from knn_seq.errors import DamagedFile, InvalidSetting, NotFound
from knn_seq.fairseq.checkpoint.options import OPTIONS_NAME
from knn_seq.fairseq.checkpoint.subwords import BytePairs, Pretokenized, SentencePieces, Subwords

KINDS: dict[str | None, type[BytePairs] | type[SentencePieces] | None] = {
    None: None,
    "subword_nmt": BytePairs,
    "fastbpe": BytePairs,
    "sentencepiece": SentencePieces,
}
FILE_OPTIONS = ("bpe_codes", "sentencepiece_model", "sentencepiece_vocab")  # the last until fairseq 0.9
# A side's own files come before those of both sides; what a file holds tells which kind of codes it is.
NAMES = (
    "bpe.{language}",
    "code.{language}",
    "codes.{language}",
    "bpecodes.{language}",
    "{language}.code",
    "{language}.codes",
    "{language}.bpecodes",
    "{language}.spm",
    "{language}.model",
    "*.{language}.model",
    "*{language}.model",
    "bpecodes",
    "bpe_codes",
    "bpe.code",
    "bpe.codes",
    "code",
    "codes",
    "code.txt",
    "codes.txt",
    "bpecodes.txt",
    "codes.bpe",
    "*.bpecodes",
    "*.code",
    "*.codes",
    "bpe.[0-9]*",
    "code.[0-9]*",
    "codes.[0-9]*",
    "codes.bpe.[0-9]*",
    "sentencepiece.bpe.model",
    "*.bpe.model",
    "spm.model",
    "*.spm",
    "*.model",
)


def find_subwords(side: str, language: str, options: dict[str, Any], folders: Sequence[Path]) -> Subwords:
    """The subwords that the options name or whose codes lie in one of the folders; else the text holds the pieces.

    Args:
        side: "source" or "target".
        language: Of that side.
        options: The checkpoint's.
        folders: That of the checkpoint, then those of the data; what lies beside a data-bin folder is found, too.
    """
    option = options.get("bpe")
    if option not in KINDS:
        raise InvalidSetting(f"The option 'bpe' ({option}) of the checkpoint is not supported.")
    kind = KINDS[option]
    beside_data = [folder.parent for folder in folders[1:] if folder.is_dir()]
    places = list(dict.fromkeys([*folders, *beside_data]))
    names = [name.format(language=language) for name in NAMES]
    for path in _named_files(options, places):
        if kind in (None, _kind(path)):
            return _kind(path)(path)
    for path, pattern in _usual_files(names, places):
        if kind in (None, _kind(path)):
            try:
                return _kind(path)(path)
            except DamagedFile:
                if "*" not in pattern:  # else it may be anything
                    raise
    if option is not None:
        usual, setting = ("spm.model", "sentencepiece_model") if kind is SentencePieces else ("bpecodes", "bpe_codes")
        raise NotFound(
            f"The {option} file of the {side} side was not found in {' or '.join(map(str, places))}: put it beside the "
            f"checkpoint as {usual}, or name it in {OPTIONS_NAME} ({setting})."
        )
    return Pretokenized(_without_special_cases(names), places)


def _without_special_cases(names: Sequence[str]) -> list[str]:
    """The names that no other one of them covers."""
    return [name for name in names if not any(other != name and fnmatchcase(name, other) for other in names)]


def _named_files(options: dict[str, Any], folders: Sequence[Path]) -> Iterator[Path]:
    """Files that the options name, where they were or in the folders."""
    for option in FILE_OPTIONS:
        given = options.get(option)
        if isinstance(given, str) and given:
            inside = [folder / name for name in (given, Path(given).name) for folder in folders]
            yield from (path for path in (*inside, Path(given)) if path.is_file())


def _usual_files(names: Sequence[str], folders: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """Files under the usual names, and the names; where several fit one, none can be told from the others."""
    for folder in folders:
        for name in names:
            files = [path for path in folder.glob(name) if path.is_file()]
            if len(files) == 1:
                yield files[0], name


def _kind(path: Path) -> type[BytePairs] | type[SentencePieces]:
    """What a file holds: a SentencePiece model is no text."""
    try:
        with open(path, "rb") as file:
            return SentencePieces if b"\0" in file.read(1024) else BytePairs
    except OSError as error:
        raise DamagedFile(f"The subword codes {path} cannot be read: {error.strerror}.") from error
