# PYTHON_ARGCOMPLETE_OK
"""The command `knn-seq`."""

from __future__ import annotations

import argparse
import atexit
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from knn_seq import __version__
from knn_seq.cli import (
    add,
    api_key,
    build,
    compact,
    completion,
    convert,
    delete,
    demo,
    evaluate,
    export,
    fairseq_dir,
    find,
    generate,
    glossary,
    index,
    info,
    merge,
    perplexity,
    plan,
    prune,
    serve,
    train,
    translate,
    tune,
    update,
)
from knn_seq.cli.colours import RED, YELLOW, coloured
from knn_seq.cli.limited_memory import run_within_limits
from knn_seq.errors import KnnSeqError, NotEnoughMemory
from knn_seq.runtime.libraries import require_memory_for_libraries
from knn_seq.runtime.memory import lack_of_memory

COMMANDS = {
    "plan": plan,
    "build": build,
    "index": index,
    "add": add,
    "update": update,
    "delete": delete,
    "find": find,
    "export": export,
    "compact": compact,
    "merge": merge,
    "prune": prune,
    "train": train,
    "glossary": glossary,
    "tune": tune,
    "translate": translate,
    "serve": serve,
    "api-key": api_key,
    "evaluate": evaluate,
    "perplexity": perplexity,
    "generate": generate,
    "info": info,
    "convert": convert,
    "demo": demo,
    "fairseq-dir": fairseq_dir,
    "completion": completion,
}
WITHOUT_LIBRARIES = ("api-key", "completion", "fairseq-dir")
RESERVE = 4 << 20  # bytes to say in that memory ran out
ENDING = ("SIGTERM", "SIGHUP")  # those that the system has


class _Parser(argparse.ArgumentParser):
    def __init__(self, **named: Any) -> None:
        super().__init__(**{**named, "allow_abbrev": False})  # an option that is added must not change a command

    def error(self, message: str) -> None:  # type: ignore[override]
        """One sentence, as for every other mistake."""
        raise KnnSeqError(f"{message[0].upper()}{message[1:]}; `{self.prog} --help` shows how.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code: 0, or 2 if the user has to fix something."""
    try:
        return run_within_limits(lambda: _main(arguments))
    except KnnSeqError as error:
        _say(str(error), RED)
        return 2


def _main(arguments: Sequence[str] | None) -> int:
    reserve = bytearray(RESERVE)
    atexit.register(gc.freeze)  # or Python would look at all objects once more before it ends
    try:
        parser = _parser()
        if "_ARGCOMPLETE" in os.environ:  # a shell asks what could stand here
            import argcomplete

            argcomplete.autocomplete(parser)
        parsed = parser.parse_args(arguments)
        _show_messages(logging.WARNING if getattr(parsed, "quiet", False) else logging.INFO)
        with _interrupted_by_signals():
            if parsed.needs_libraries:
                require_memory_for_libraries()
            parsed.run(parsed)
        sys.stdout.flush()
    except KeyboardInterrupt as interrupt:
        try:
            _say("interrupted; what was finished is kept.", RED)
        except OSError:  # the terminal is gone
            _drop(sys.stderr)
        return 128 + (interrupt.args[0] if interrupt.args else signal.SIGINT)
    except BrokenPipeError:  # the reader of our output has had enough
        _drop(sys.stdout)
        return 141
    except Exception as error:
        del reserve
        known = error if isinstance(error, KnnSeqError) else _lack_of_memory(error) or _full_disk(error)
        if known is None:
            raise
        _say(str(known), RED)
        try:
            sys.stdout.flush()
        except OSError:
            _drop(sys.stdout)
        return 2
    return 0


def _drop(stream: TextIO) -> None:
    """Let Python not write once more, when it ends, what could not be written: that would be its exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _full_disk(error: Exception) -> KnnSeqError | None:
    from knn_seq.storage.atomic import disk_full

    return disk_full(error)


def _lack_of_memory(error: Exception) -> KnnSeqError | None:
    try:
        return lack_of_memory(error)
    except MemoryError:
        return NotEnoughMemory("Memory ran out: raise its limit, or take a smaller model, index or batches.")


def _say(sentence: str, colour: str) -> None:
    print(f"{coloured('knn-seq:', colour, sys.stderr)} {sentence}", file=sys.stderr, flush=True)


@contextmanager
def _interrupted_by_signals() -> Iterator[None]:
    """Let the end of a session or of a service interrupt a command as Ctrl-C does."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt(number)

    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.Signals[name] for name in ENDING if name in signal.Signals.__members__):
            if signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` has it
                before[number] = signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show_messages(level: int) -> None:
    """Write what the library has to say to standard error."""
    log = logging.getLogger("knn_seq")
    log.setLevel(level)
    for handler in [each for each in log.handlers if isinstance(each, _StderrHandler)]:
        log.removeHandler(handler)
    log.addHandler(_StderrHandler())


class _StderrHandler(logging.Handler):
    """Writes plain sentences; warnings say whose they are."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            _say(record.getMessage(), YELLOW)
        else:
            print(record.getMessage(), file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="knn-seq", description="Nearest-neighbour machine translation.")
    parser.add_argument("--version", action="version", version=f"knn-seq {__version__}")
    parser.set_defaults(run=lambda _: parser.print_help(), needs_libraries=False)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, command in COMMANDS.items():
        own = commands.add_parser(
            name, help=command.HELP, description=f"{command.__doc__}", epilog=f"Example: {command.EXAMPLE}"
        )
        command.add_arguments(own)
        own.set_defaults(run=command.run, needs_libraries=name not in WITHOUT_LIBRARIES)
    return parser


if __name__ == "__main__":
    sys.exit(main())
