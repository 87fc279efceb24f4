"""The part of knn-seq translate that takes files of any format."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from knn_seq.cli.files import require_writable
from knn_seq.cli.options import add_part_option, given_flag
from knn_seq.cli.searched import open_translator
from knn_seq.errors import InvalidSetting, KnnSeqError, NotFound

if TYPE_CHECKING:
    from knn_seq.files import FileReport

FOR_FILES = ("to_folder", "format", "exact_matches", "report", "placeholders", "document_options")
FOR_LINES = ("input", "nbest", "explain", "explain_neighbours")


def add_file_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options that are for files."""
    parser.add_argument(
        "files", nargs="*", metavar="FILE", help="files to translate, markup and all; without them, lines are"
    )
    group = parser.add_argument_group(
        "files", "PO, XLIFF, TMX, text, Markdown, HTML, DocBook, subtitles, JSON, DOCX ..."
    )
    group.add_argument("--to-folder", metavar="DIR", help="write the translations there, under the files' own names")
    group.add_argument("--format", metavar="NAME", help="of the files, where their names do not tell")
    group.add_argument(
        "--exact-matches",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="what the store has as it is takes its stored translation (default: it does)",
    )
    group.add_argument(
        "--placeholder",
        dest="placeholders",
        action="append",
        metavar="REGEX",
        help="further text that must come out as it is; may be given often",
    )
    group.add_argument(
        "--report",
        choices=("text", "json"),
        help="what became of each file: a line (default), or every segment as JSON",
    )
    add_part_option(group, "document", "such as target_lang=en of TMX")


def require_lines(arguments: argparse.Namespace) -> None:
    """Raise an `InvalidSetting` if an option was given that is for files."""
    if (flag := given_flag(arguments, FOR_FILES)) is not None:
        flag = "--placeholder" if flag == "--placeholders" else flag
        raise InvalidSetting(f"{flag} is for files: name one behind the datastore, or leave the option out.")


def translate_files(arguments: argparse.Namespace, names: Sequence[str]) -> None:
    """Translate files, each into one of the same format."""
    from knn_seq.files.translate import open_for, translate_document, write_document
    from knn_seq.runtime.progress import Progress

    if (flag := given_flag(arguments, FOR_LINES)) is not None:
        raise InvalidSetting(f"{flag} is for lines: leave it out, or give the text on standard input.")
    outputs = _outputs(arguments, names)
    _require_formats(names, arguments.format)
    with open_translator(arguments, arguments.ensemble, glossary=arguments.glossary) as translator:
        options = (arguments.format, arguments.document_options)
        documents = [open_for(translator, name, *options) for name in names]  # a bad one is refused before work begins
        total = sum(segment.wanted for document in documents for segment in document.segments)
        reports: list[FileReport] = []
        with Progress("translate", total, "segment") as progress:
            for document, output in zip(documents, outputs, strict=True):
                made = translate_document(
                    translator,
                    document,
                    exact_matches=arguments.exact_matches is not False,
                    placeholders=arguments.placeholders or (),
                    on_progress=progress.update,
                )
                if output is None:
                    sys.stdout.buffer.write(made.data)
                else:
                    write_document(output, made.data)
                reports.append(made.report)
    for report, output in zip(reports, outputs, strict=True):
        _show(report, output, arguments)


def _show(report: FileReport, output: Path | None, arguments: argparse.Namespace) -> None:
    if arguments.report == "json":
        told = {**report.to_dict(), "output": None if output is None else str(output)}
        print(json.dumps(told, ensure_ascii=False, allow_nan=False), file=sys.stdout)
    elif not arguments.quiet:
        print(report.describe(), file=sys.stderr)


def _outputs(arguments: argparse.Namespace, names: Sequence[str]) -> list[Path | None]:
    """The file that each one is written to; None: standard output."""
    if arguments.output and arguments.to_folder:
        raise InvalidSetting("Give --output for one file or --to-folder for several, not both.")
    if arguments.to_folder:
        folder = Path(arguments.to_folder)
        outputs = [folder / Path(name).name for name in names]
        twice = next((path for path in outputs if outputs.count(path) > 1), None)
        if twice is not None:
            raise InvalidSetting(f"Two of the files would be written to {twice}: translate them into two folders.")
        for name, output in zip(names, outputs, strict=True):
            if output.exists() and Path(name).exists() and output.samefile(name):
                raise InvalidSetting(f"{name} would be written over: give another folder, or name it with --output.")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise KnnSeqError(f"{folder} cannot be made: {error.strerror}.") from error
        require_writable(*map(str, outputs))
        return list(outputs)
    if len(names) > 1:
        raise InvalidSetting("Several files need a folder to be written to: give --to-folder.")
    require_writable(arguments.output)
    if not arguments.output:
        if arguments.report == "json":
            raise InvalidSetting("The report would be mixed with the file on standard output: give --output as well.")
        if sys.stdout.isatty() and Path(names[0]).suffix.lower() in (".docx", ".odt"):
            raise InvalidSetting(f"{names[0]} cannot be shown on a terminal: give --output.")
    return [Path(arguments.output) if arguments.output else None]


def _require_formats(names: Sequence[str], format: str | None) -> None:
    """Raise before the model is loaded if a file is not there or of no known format."""
    from knn_seq.documents import DOCUMENT_FORMATS, require_known_format

    for name in names:
        if not Path(name).exists():
            raise NotFound(f"There is no file {name}.")
        if format is None:
            require_known_format(Path(name))
    if format is not None:
        DOCUMENT_FORMATS.get(format)
