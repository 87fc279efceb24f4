"""The whole suite of speed: one table of ratios, what was to be reached, and whether it was.

Writes bench.json, with every round, and bench.md into the folder.  A run that was killed goes on: datastores are found
again, and parts that were finished are not measured again unless --again is given.

    python benchmarks/bench.py --folder results/speed
    python benchmarks/bench.py --parts keys decode --again --into docs/speed.md
"""

from __future__ import annotations

from knn_seq.runtime.environment import limit_spinning

limit_spinning()  # before torch is imported

import os
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rounds import Row, command_line, options_of, table

from knn_seq.storage.atomic import read_json, write_json

PARTS = ("keys", "decode", "scale", "memory", "startup")  # modules, each with `measure(folder, options) -> list[Row]`
BEGIN, END = "<!-- bench.py writes from here -->", "<!-- to here -->"


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--again", action="store_true", help="measure parts anew that were finished before")
    parser.add_argument("--into", type=Path, help="a Markdown file with marks between which the table is put")
    arguments = parser.parse_args()
    folder, options = arguments.folder, options_of(arguments)
    folder.mkdir(parents=True, exist_ok=True)

    path = folder / "bench.json"
    report: dict[str, Any] = read_json(path) if path.exists() else {}
    report |= {"machine": machine()}
    finished: dict[str, Any] = report.setdefault("parts", {})
    for part in arguments.parts:
        if not arguments.again and part in finished and finished[part]["options"] == asdict(options):
            print(f"{part}: measured before, at {finished[part]['finished']}", file=sys.stderr)
            continue
        print(f"{part} ...", file=sys.stderr, flush=True)
        start = time.monotonic()
        module = import_module(part)
        rows = module.measure(folder, options)
        finished[part] = {
            "options": asdict(options),
            "finished": time.strftime("%Y-%m-%d %H:%M"),
            "seconds": round(time.monotonic() - start),
            "rows": [row.to_dict() for row in rows],
        }
        write_json(path, report)
    text = summary(report, [part for part in PARTS if part in arguments.parts])
    print(text)
    (folder / "bench.md").write_text(text + "\n")
    if arguments.into:
        arguments.into.write_text(put_between(arguments.into.read_text(), text))


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    model = ""
    if os.path.exists("/proc/cpuinfo"):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    versions = {name: version(name) for name in ("knn-seq", "torch", "transformers", "faiss-cpu")}
    return {"processor": model, "cores": len(os.sched_getaffinity(0)), "python": platform.python_version(), **versions}


def summary(report: dict[str, Any], parts: Sequence[str]) -> str:
    """The table, and what it was measured on."""
    rows = [Row.from_dict(data) for part in parts for data in report["parts"][part]["rows"]]
    goals = [row.reached for row in rows if row.reached is not None]
    on = report["machine"]
    return (
        f"{table(rows)}\n\n{sum(goals)} of {len(goals)} goals reached; {on['processor']}, {on['cores']} cores, "
        f"Python {on['python']}, torch {on['torch']}, transformers {on['transformers']}, faiss {on['faiss-cpu']}."
    )


def put_between(document: str, text: str) -> str:
    """The document with the text between its two marks."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"The file has no place for the table: it needs the lines '{BEGIN}' and '{END}'.")
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


if __name__ == "__main__":
    main()
