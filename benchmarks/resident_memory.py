"""Memory of a running translator beyond the model, for each entry, against the bytes that its index has for a key.

In a process of its own, a translator translates 64 sentences with the model alone, then with neighbours.  What it has
more afterwards is the datastore's: private memory, and pages of the datastore's files that are mapped.  Memory that was
freed and is only kept for later is given back first, else the index would fill what the model has left and look small.
The pages of keys.h5 are counted apart: they are the disk's cache, which the system takes back when anybody else needs
memory.

    python benchmarks/resident_memory.py --folder results/speed
"""

from __future__ import annotations

from knn_seq.runtime.environment import limit_spinning

limit_spinning()  # before torch is imported

import ctypes
import gc
import json
import statistics
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from rounds import Options, Ratio, Row, command_line, options_of, table

MODEL, K, SENTENCES = "firefox", 64, 64
GOAL, VALUE_BYTES = 1.2, 8  # 1.2 times the index's bytes for a key, and 8 more
ROUNDS = 3  # there is little noise
KEYS = "keys.h5"


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--child", type=Path, help="used by the script itself: measure this datastore")
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(running_translator(arguments.child)))
    else:
        print(table(measure(arguments.folder, options_of(arguments))))


def measure(folder: Path, options: Options) -> list[Row]:
    """(bytes per entry - 8) / the index's bytes per key, without and with the pages of keys.h5 in memory."""
    from speed_models import sized_store, speed_model

    sizes = ("tiny",) if options.quick else ("1m", "10m") if options.full else ("1m",)
    rows = []
    for size in sizes:
        store, _ = sized_store(folder, MODEL, speed_model(MODEL), size)
        command = [sys.executable, __file__, "--child", str(store.path)]
        runs = [
            json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
            for _ in range(min(options.rounds, ROUNDS))
        ]
        entries = len(store)
        own = [run["own"] / entries for run in runs]
        mapped = [run["keys"] / entries for run in runs]
        index = folder_bytes(store.index_folder(str(store.manifest.default_index))) / entries
        print(
            f"{size}, {entries:,} entries: {statistics.median(own):.1f} bytes each, "
            f"and {statistics.median(mapped):.1f} in memory of keys.h5; the index has {index:.1f} on disk",
            file=sys.stderr,
            flush=True,
        )
        figures = {"entries": entries, "index_bytes_per_key": index, "bytes_per_entry": own, "runs": runs}
        both = [first + second for first, second in zip(own, mapped, strict=True)]
        for each, how, goal in ((own, "without", options.goal(GOAL)), (both, "with", None)):
            ratio = Ratio.over([(value - VALUE_BYTES) / index for value in each])
            what = f"(memory per entry - {VALUE_BYTES}) / index's bytes per key, {how} cached pages of keys.h5"
            rows.append(Row(f"{what}, {MODEL}, {size.replace('m', 'M')} entries", ratio, goal, True, figures))
    return rows


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def running_translator(store: Path) -> dict[str, Any]:
    """What the other process does; bytes that came with the datastore."""
    from speed_models import demo_text, speed_model

    import knn_seq.index.faiss  # noqa: F401 - a library is no datastore
    from knn_seq.translator import Translator

    sources = [pair.source for pair in demo_text()[1][:SENTENCES]]
    translator = Translator(store, speed_model(MODEL), k=K, temperature=50.0, max_length=64)
    for _ in range(2):  # until what the first batches leave behind is there
        translator.translate(sources, weight=0.0)
    before = resident(store)
    translator.translate(sources, weight=0.5, retriever="full")
    grown = resident(store)
    grown.subtract(before)
    keys = grown.pop(KEYS)
    return {"own": grown.total(), "keys": keys, "parts": dict(grown)}


def resident(store: Path) -> Counter[str]:
    """Bytes in memory: of each of the datastore's files that is mapped, and all else that is this process's alone."""
    gc.collect()
    if sys.platform == "linux":
        with suppress(AttributeError, OSError):  # a C library that does not keep what was freed
            ctypes.CDLL(None).malloc_trim(0)
    found: Counter[str] = Counter()
    name, own = "", False
    root = str(store.resolve())
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split(maxsplit=5)
        if not first.endswith(":"):  # a new mapping: addresses, rights, offset, device, inode, path
            path = rest[4] if len(rest) == 5 else ""
            own = not path.startswith(root)
            name = "private" if own else Path(path).name
        elif first in (("Private_Clean:", "Private_Dirty:") if own else ("Rss:",)):
            found[name] += 1024 * int(rest[0])
    return found


if __name__ == "__main__":
    main()
