"""knn-seq translate: lines in, lines out; or files of many formats."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from knn_seq.cli.colours import highlight_labels
from knn_seq.cli.lines import asks_a_person, batches_of_lines
from knn_seq.cli.options import add_decoding_options, add_model_options, add_quiet_option, add_search_options
from knn_seq.cli.searched import add_searched_options, open_translator
from knn_seq.cli.translate_files import add_file_options, require_lines, translate_files
from knn_seq.errors import InvalidSetting, KnnSeqError

if TYPE_CHECKING:
    from knn_seq.decoding import Translation
    from knn_seq.runtime.progress import Progress
    from knn_seq.translator import Translator

log = logging.getLogger(__name__)

HELP = "translate files, or standard input, a sentence a line"
EXAMPLE = "knn-seq translate store/ < in.txt > out.txt"
EXPLAINED_AT_ONCE = 128  # lines whose neighbours, with their texts, are held in memory
NEIGHBOURS = {"text": 2, "json": 8}  # of a token, that are written out
# Beside the formats of parallel text that there is no reader of.
DOCUMENTS = (".html", ".htm", ".xml", ".pdf", ".odt", ".doc", ".rtf")
PARALLEL_TEXT = (".tmx", ".xlf", ".xliff", ".sdlxliff", ".mqxliff", ".po", ".pot")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_searched_options(parser)
    add_file_options(parser)
    parser.add_argument("--input", metavar="FILE", help="instead of standard input")
    parser.add_argument("--output", metavar="FILE", help="instead of standard output")
    parser.add_argument(
        "--max-wait",
        type=float,
        default=0.1,
        metavar="SECONDS",
        help="that a line waits for others to be translated with it, if the input is not a file (default 0.1)",
    )
    parser.add_argument(
        "--glossary",
        metavar="FILE",
        help="terms that are binding, instead of the datastore's own: TSV with source and target, or TBX",
    )
    parser.add_argument("--nbest", type=int, help="that many outputs for each line, as number ||| output")
    parser.add_argument("--ensemble", action="append", default=[], metavar="MODEL", help="a further model to join in")
    group = parser.add_argument_group("explanations")
    group.add_argument(
        "--explain",
        choices=("text", "json"),
        help="write why each translation is what it is: to read, or as JSON lines with every token",
    )
    group.add_argument(
        "--explain-neighbours",
        type=int,
        metavar="N",
        help="the nearest neighbours of a token that are written out (default 2 as text, 8 as JSON; 0: none)",
    )
    add_search_options(parser)
    add_decoding_options(parser)
    add_model_options(parser)
    add_quiet_option(parser)


def run(arguments: argparse.Namespace) -> None:
    """Translate chunk by chunk, so that endless input works."""
    from knn_seq.runtime.wording import count

    if names := _files(arguments):
        translate_files(arguments, names)
        return
    require_lines(arguments)
    shown = _neighbours_shown(arguments)
    if not arguments.max_wait >= 0:
        raise InvalidSetting(f"--max-wait must be at least 0, not {arguments.max_wait}.")
    with ExitStack() as files:
        source = files.enter_context(_reading(arguments.input)) if arguments.input else sys.stdin
        translator = open_translator(arguments, arguments.ensemble, glossary=arguments.glossary)
        target = files.enter_context(_writing(arguments.output)) if arguments.output else sys.stdout
        first = cut = lacking = 0
        with _progress(arguments.input, source, target) as progress:
            for lines in batches_of_lines(source, arguments.max_wait):
                translations = translator.translate(lines, on_progress=progress.update if progress else None)
                if arguments.explain == "json":
                    output = _explained_as_json(translator, translations, shown, bool(arguments.nbest))
                elif arguments.explain:
                    output = _explained_as_text(translator, translations, shown, bool(arguments.nbest), target)
                else:
                    output = _texts(translations, first if arguments.nbest else None)
                for line in output:
                    print(line, file=target)
                first += len(translations)
                cut += sum(translation.source_cut for translation in translations)
                lacking += sum(not term.applied for translation in translations for term in translation.terms)
                target.flush()
    if cut:
        log.warning("Longer than the model can read, and cut at the end: %s.", count(cut, "line"))
    if lacking:
        log.warning("Not as the glossary has them: %s.", count(lacking, "term"))


def _files(arguments: argparse.Namespace) -> list[str]:
    """The files that were given; with a translation memory instead of a datastore, the first stands in its place."""
    files: list[str] = arguments.files
    if arguments.translation_memory and arguments.store and not Path(arguments.store).is_dir():
        files, arguments.store = [arguments.store, *files], None
    return files


def _neighbours_shown(arguments: argparse.Namespace) -> int:
    given: int | None = arguments.explain_neighbours
    if given is None:
        return NEIGHBOURS.get(arguments.explain, 0)
    if not arguments.explain:
        raise KnnSeqError("--explain-neighbours is for explanations: give --explain as well, or leave it out.")
    if given < 0:
        raise KnnSeqError(f"--explain-neighbours must be at least 0, not {given}.")
    return given


def _texts(translations: list[Translation], first: int | None) -> Iterator[str]:
    """A line for each output; with the number of the first line given, the outputs' numbers before them."""
    for number, translation in enumerate(translations, first or 0):
        for text in (translation, *translation.alternatives):
            yield text if first is None else f"{number} ||| {text}"


def _explained_as_text(
    translator: Translator, translations: list[Translation], neighbours: int, alternatives: bool, target: TextIO
) -> Iterator[str]:
    """Some lines for each translation, and for its alternatives if they are wanted."""
    from knn_seq.explain import as_text, explain
    from knn_seq.explain.text import INDENT

    for translation in translations:
        every = [translation, *translation.alternatives] if alternatives else [translation]
        for explanation in explain(translator, every, neighbours):
            text = as_text(explanation, translator.store, translator.model.tokenizer, neighbours)
            yield highlight_labels(text, INDENT, target)


def _explained_as_json(
    translator: Translator, translations: list[Translation], neighbours: int, alternatives: bool
) -> Iterator[str]:
    """A JSON object for each translation, with those of its alternatives in it if they are wanted."""
    from knn_seq.explain import explain, to_dicts

    for start in range(0, len(translations), EXPLAINED_AT_ONCE):
        some = translations[start : start + EXPLAINED_AT_ONCE]
        every = [one for translation in some for one in (translation, *translation.alternatives)]
        explained: Iterator[dict[str, Any]] = iter(to_dicts(explain(translator, every, neighbours), translator.store))
        for translation in some:
            best, *others = islice(explained, 1 + len(translation.alternatives))
            if alternatives:
                best["alternatives"] = [{key: other[key] for key in other if key != "source"} for other in others]
            yield json.dumps(best, ensure_ascii=False, allow_nan=False)


def _progress(name: str | None, source: TextIO, target: TextIO) -> AbstractContextManager[Progress | None]:
    """How far it is; not on a terminal where lines are typed or appear, which a bar would run through."""
    from knn_seq.runtime.progress import Progress

    if asks_a_person(source) or (target.isatty() and sys.stderr.isatty()):
        return nullcontext()
    return Progress("translate", _count_lines(name) if name else None, "sentence")


@contextmanager
def _reading(name: str) -> Iterator[TextIO]:
    _require_lines(name)
    try:
        with open(name, encoding="utf-8") as file:
            yield file
    except KnnSeqError:  # some are an OSError, too: those of an index that does not answer, of a full disk
        raise
    except OSError as error:
        raise KnnSeqError(f"{name} cannot be read: {error.strerror}.") from error


def _require_lines(name: str) -> None:
    """Raise an `InvalidSetting` if the file's name says that it is no plain text."""
    from knn_seq.corpus.finding import UNKNOWN_SUFFIXES

    suffix = Path(name.lower().removesuffix(".gz")).suffix
    if suffix in (*UNKNOWN_SUFFIXES, *PARALLEL_TEXT, *DOCUMENTS):
        raise InvalidSetting(
            f"{name} is a {suffix} file, and --input is plain text, a sentence a line: leave --input out, and give the "
            "file behind the datastore."
        )


@contextmanager
def _writing(name: str) -> Iterator[TextIO]:
    """A file that takes its name when all of it is written."""
    from knn_seq.storage.atomic import partial_of, publish

    path = Path(name)
    try:
        with open(partial_of(path), "w", encoding="utf-8") as file:
            yield file
        publish(partial_of(path), path)
    except KnnSeqError:  # some are an OSError, too: those of an index that does not answer, of a full disk
        raise
    except OSError as error:
        raise KnnSeqError(f"{name} cannot be written: {error.strerror}.") from error


def _count_lines(name: str) -> int | None:
    """The lines of a file; None for what can be read only once."""
    if not Path(name).is_file():
        return None
    with open(name, "rb") as file:
        return sum(1 for _ in file)
