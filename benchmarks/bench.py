"""The complete suite of speed: one table of ratios, what was to be reached, and whether it was.

Writes bench.json, with every round, into the folder.  A run that was killed resumes: datastores are found again, and
parts that were finished at the same commit are not measured again unless --again is given.

    python benchmarks/bench.py --folder results/speed
    python benchmarks/bench.py --parts key_computation startup --again --into docs/speed.md
"""

from __future__ import annotations

from knn_seq.runtime.environment import limit_spinning

limit_spinning()  # before torch is imported

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from typing import Any

from figures import commit, measuring_conditions, write_figures
from rounds import Row, command_line, options_of, table

from knn_seq.storage.atomic import read_json, write_json

PARTS = (
    "key_computation",
    "decoding_speed",
    "engines",
    "scale",
    "resident_memory",
    "startup",
)  # modules, each with `measure(folder, options) -> list[Row]`


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--again", action="store_true", help="measure parts again that were finished before")
    arguments = parser.parse_args()
    folder, options = arguments.folder, options_of(arguments)
    folder.mkdir(parents=True, exist_ok=True)

    path = folder / "bench.json"
    report: dict[str, Any] = read_json(path) if path.exists() else {}
    report |= {"conditions": measuring_conditions()}
    finished: dict[str, Any] = report.setdefault("parts", {})
    for part in arguments.parts:
        measured_with = {"options": asdict(options), "commit": commit()}
        before = finished.get(part, {})
        if not arguments.again and {name: before.get(name) for name in measured_with} == measured_with:
            print(f"{part}: measured before, at {before['finished']}", file=sys.stderr)
            continue
        print(f"{part} ...", file=sys.stderr, flush=True)
        start = time.monotonic()
        module = import_module(part)
        rows = module.measure(folder, options)
        finished[part] = {
            **measured_with,
            "finished": time.strftime("%Y-%m-%d %H:%M"),
            "seconds": round(time.monotonic() - start),
            "rows": [row.to_dict() for row in rows],
        }
        write_json(path, report)
    parts = [part for part in PARTS if part in arguments.parts]
    write_figures(arguments.into, {"speed": summary(report, parts)}, report["conditions"])


def summary(report: dict[str, Any], parts: Sequence[str]) -> str:
    """The table, and how many goals were reached."""
    rows = [Row.from_dict(data) for part in parts for data in report["parts"][part]["rows"]]
    goals = [row.reached for row in rows if row.reached is not None]
    return f"{table(rows)}\n\n{sum(goals)} of {len(goals)} goals reached."


if __name__ == "__main__":
    main()
