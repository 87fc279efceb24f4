"""How long threads should wait by spinning before they sleep, on a quiet machine and beside another busy process.

GNU OpenMP reads GOMP_SPINCOUNT when it is loaded, so each count has a process of its own; they take turns, sentence by
sentence, and all but one wait.

    python benchmarks/spinning_threads.py --folder results/speed
"""

from __future__ import annotations

from knn_seq.runtime.environment import limit_spinning

limit_spinning()  # before torch is imported; leaves alone what the parent process has set

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from figures import write_figures
from rounds import Row, command_line, options_of, rates_by_pieces, ratios_by_pieces, table

MODEL, LENGTH, BEAM, SENTENCES = "firefox", 32, 5, 8
SYSTEMS: dict[str, dict[str, Any]] = {"base": {"weight": 0.0}, "full": {}}
VARIABLE, DEFAULT = "GOMP_SPINCOUNT", "2000"
BUSY = [sys.executable, "-c", "while True: pass"]


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--counts", nargs="+", default=["20000", "200000"])
    parser.add_argument("--child", action="store_true", help="used by the script itself")
    arguments = parser.parse_args()
    if arguments.child:
        answer(arguments.folder)
        return
    store = built_store(arguments.folder, "tiny" if arguments.quick else "1m")
    workers = {count: Worker(store, count) for count in (DEFAULT, *arguments.counts)}
    rows = []
    for beside, busy in (("", False), (", beside a busy process", True)):
        with another_process(busy):
            rows += compared(workers, options_of(arguments).rounds, beside)
    write_figures(arguments.into, {"spinning-threads": table(rows)})


def compared(workers: dict[str, Worker], rounds: int, beside: str) -> list[Row]:
    """How fast the same sentences are translated with other counts than the default one."""
    rows = []
    for system in SYSTEMS:
        runs = {
            count: [partial(worker.translate, system, sentence) for sentence in range(SENTENCES)]
            for count, worker in workers.items()
        }
        found = ratios_by_pieces(rates_by_pieces(runs, rounds))
        rows += [
            Row(f"speed of {system} with {VARIABLE} {count} / {DEFAULT}{beside}", found[count])
            for count in list(workers)[1:]
        ]
    return rows


class Worker:
    """A process that translates when it is told to."""

    def __init__(self, store: Path, count: str) -> None:
        command = [sys.executable, __file__, "--child", "--folder", str(store)]
        self.process = subprocess.Popen(
            command, env={**os.environ, VARIABLE: count}, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def translate(self, system: str, sentence: int) -> int:
        """Returns how many sentences it has translated."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(system, sentence, file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())


def built_store(folder: Path, size: str) -> Path:
    """The datastore, built before several processes open it."""
    from speed_models import sized_store, speed_model

    return sized_store(folder, MODEL, speed_model(MODEL), size)[0].path


def answer(store: Path) -> None:
    """What a worker does whenever it reads a system and the number of a sentence."""
    from speed_models import demo_text, speed_model

    from knn_seq.translator import Translator

    test = demo_text()[1]
    translator = Translator(
        store, speed_model(MODEL), max_length=LENGTH, beam_size=BEAM, k=64, temperature=50.0, weight=0.5
    )
    for line in sys.stdin:
        system, number = line.split()
        print(len(translator.translate([test[int(number)].source], **SYSTEMS[system])), flush=True)


@contextmanager
def another_process(busy: bool) -> Iterator[None]:
    """One that uses a core all the time, or none."""
    other = subprocess.Popen(BUSY) if busy else None
    try:
        yield
    finally:
        if other is not None:
            other.kill()
            other.wait()


if __name__ == "__main__":
    main()
