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
from typing import Any

from knn_seq import __version__
from knn_seq.cli import build, convert, demo, evaluate, fairseq_dir, index, info, plan, translate, tune
from knn_seq.errors import KnnSeqError

COMMANDS = {
    "plan": plan,
    "build": build,
    "index": index,
    "tune": tune,
    "translate": translate,
    "evaluate": evaluate,
    "info": info,
    "convert": convert,
    "demo": demo,
    "fairseq-dir": fairseq_dir,
}


class _Parser(argparse.ArgumentParser):
    def __init__(self, **named: Any) -> None:
        super().__init__(**{**named, "allow_abbrev": False})  # an option that is added must not change a command

    def error(self, message: str) -> None:  # type: ignore[override]
        """One sentence, as for every other mistake."""
        raise KnnSeqError(f"{message[0].upper()}{message[1:]}; `{self.prog} --help` shows how.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code: 0, or 2 if the user has to fix something."""
    atexit.register(gc.freeze)  # or Python would look at all objects once more before it ends
    try:
        parsed = _parser().parse_args(arguments)
        _show_messages(logging.WARNING if getattr(parsed, "quiet", False) else logging.INFO)
        with _interrupted_by_signals():
            parsed.run(parsed)
        sys.stdout.flush()
    except KnnSeqError as error:
        print(f"knn-seq: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as interrupt:
        print("knn-seq: interrupted; what was finished is kept.", file=sys.stderr)
        return 128 + (interrupt.args[0] if interrupt.args else signal.SIGINT)
    except BrokenPipeError:  # the reader of our output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return 0


@contextmanager
def _interrupted_by_signals() -> Iterator[None]:
    """Let the end of a session or of a service interrupt a command as Ctrl-C does."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt(number)

    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
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
        prefix = "knn-seq: " if record.levelno >= logging.WARNING else ""
        print(f"{prefix}{record.getMessage()}", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="knn-seq", description="Nearest-neighbour machine translation.")
    parser.add_argument("--version", action="version", version=f"knn-seq {__version__}")
    parser.set_defaults(run=lambda _: parser.print_help())
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, command in COMMANDS.items():
        own = commands.add_parser(
            name, help=command.HELP, description=f"{command.__doc__}", epilog=f"Example: {command.EXAMPLE}"
        )
        command.add_arguments(own)
        own.set_defaults(run=command.run)
    return parser


if __name__ == "__main__":
    sys.exit(main())
