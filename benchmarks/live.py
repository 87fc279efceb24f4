"""What it costs to change a datastore while it is used, and to search one that was changed.

    python benchmarks/live.py                        # a datastore of a million entries
    python benchmarks/live.py --entries 100000 --pairs 1000 --additions 200

The keys of most sentences are jittered copies of others, so that a large datastore is soon built.  Ratios are of
processor seconds, measured in turns.
"""

from __future__ import annotations

from knn_seq.runtime.environment import limit_spinning

limit_spinning()  # before torch is imported

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from figures import write_figures
from rounds import Options, Ratio, Row, command_line, options_of, table
from speed_models import JitteredModel, held_out_states, speed_model, speed_store

from knn_seq import Datastore, Translator
from knn_seq.corpus import SentencePair
from knn_seq.index.segmented import open_segmented
from knn_seq.models.network import NetworkModel

K = 64
COMPUTED = 3_000  # sentences whose keys are really computed
CHANGED = 0.05  # of the entries: as many are deleted as are added
BATCHES = (1, 160)
SECONDS = 0.3  # in which a pair that is added is used
COMPACTION = 1.2  # times the cost of an index: keys, texts and values are copied, too
FILES, MEGABYTES = 4, 32  # that 1,000 additions may take: a large segment or two more, and their numbers


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--entries", type=int, default=1_000_000, help="of the datastore")
    parser.add_argument("--pairs", type=int, default=10_000, help="that are added together")
    parser.add_argument("--additions", type=int, default=1_000, help="one by one, for memory and open files")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.entries, arguments.pairs, arguments.additions = 40_000, 100, 40
    rows = measure(arguments.folder, arguments.entries, arguments.pairs, arguments.additions, options_of(arguments))
    write_figures(arguments.into, {"live": table(rows)})


def measure(folder: Path, entries: int, pairs: int, additions: int, options: Options) -> list[Row]:
    """All rows of the table."""
    model = speed_model("firefox")
    place = folder / f"live-{entries}"
    store, test = speed_store(place, model, entries, min(COMPUTED, entries // 35), auto_compact=0.0)
    with tempfile.TemporaryDirectory(dir=place) as made:
        work = Path(made)
        return [
            *one_pair(copy_of(store, work / "one"), model, test, options),
            *many_pairs(copy_of(store, work / "many"), model, store, pairs, work, options),
            *changed_search(store, copy_of(store, work / "changed"), model, test, options),
            *growth(copy_of(store, work / "growing"), model, test, additions, options),
        ]


def copy_of(store: Datastore, path: Path) -> Datastore:
    """A datastore that may be changed: its files are links to the same ones, which are never written again."""
    shutil.copytree(store.path, path, copy_function=os.link)
    (path / ".lock").unlink(missing_ok=True)
    return Datastore(path)


def one_pair(store: Datastore, model: NetworkModel, test: Sequence[SentencePair], options: Options) -> list[Row]:
    """Seconds from a pair to the moment when a running translator searches it."""
    translator = Translator(store, model, combiner="fixed", beam_size=1, max_length=40)
    translator.translate(test[0].source)
    seconds = []
    for pair in test[: max(options.rounds, 3)]:
        start = time.perf_counter()
        store.add([(pair.source, pair.target)], model)
        translator.decoder.refresh()
        seconds.append(time.perf_counter() - start)
    what = f"seconds to add a pair to {len(store):,} entries and search it in a running translator"
    return [Row(what, Ratio.over(seconds), options.goal(SECONDS), at_most=True)]


def many_pairs(
    store: Datastore, model: NetworkModel, like: Datastore, count: int, work: Path, options: Options
) -> list[Row]:
    """Pairs a second that are added, against those that a build of the same pairs makes."""
    texts = [like.texts[number] for number in range(len(like.texts))]
    chosen = texts[:: max(len(texts) // count, 1)][:count]

    def build() -> None:
        Datastore.build(work / "built", model, chosen, calibration_sentences=0)

    built, added = processor_seconds(build), processor_seconds(lambda: store.add(chosen, model))
    return [
        Row(
            f"rate of adding {len(chosen):,} pairs, against that of building a datastore of them",
            Ratio.over([built / added]),
            options.goal(0.8),
            figures={"build": built, "add": added},
        )
    ]


def changed_search(
    store: Datastore, changed: Datastore, model: NetworkModel, test: Sequence[SentencePair], options: Options
) -> list[Row]:
    """Searches of a datastore that was changed, and its compaction."""
    random = np.random.default_rng(0)
    total = len(store.texts)
    chosen = random.permutation(total)[: int(CHANGED * total)].tolist()
    source = JitteredModel(model)
    few = max(len(chosen) // 60, 1)  # that stay in a small segment; the others are added to the index
    for some in (chosen[few:], chosen[:few]):
        changed.add([changed.texts[number] for number in some], source)
    changed.delete([store.pairs[number].id for number in random.permutation(total)[: int(CHANGED * total)].tolist()])
    queries = held_out_states(model, test[:40], max(BATCHES)).numpy()
    before, after = open_segmented(store.snapshot()), open_segmented(changed.snapshot())
    rows = []
    for batch in BATCHES:
        parts = [queries[start : start + batch] for start in range(0, len(queries), batch)]
        ratios = in_turns(partial(search, after, parts), partial(search, before, parts), options.rounds)
        what = f"search of {batch} queries with {CHANGED:.0%} deleted and {CHANGED:.0%} added, against none"
        segments = {name: [info.tokens, *info.indexes] for name, info in changed.manifest.segments.items()}
        rows.append(Row(what, ratios, options.goal(1.2), at_most=True, figures={"segments": segments}))
    compaction = processor_seconds(changed.compact)
    index = processor_seconds(lambda: changed.add_index("auto", "again"))
    what = "a compaction, against building an index of as many keys"
    figures = {"compaction": compaction, "index": index}
    return [*rows, Row(what, Ratio.over([compaction / index]), options.goal(COMPACTION), True, figures)]


def growth(
    store: Datastore, model: NetworkModel, test: Sequence[SentencePair], additions: int, options: Options
) -> list[Row]:
    """Memory and open files of a process that adds pair by pair and translates in between."""
    translator = Translator(store, model, combiner="fixed", beam_size=1, max_length=8)
    used = []  # open files, and MB
    for number in range(additions):
        pair = test[number % len(test)]
        store.add([(pair.source, pair.target)], model)
        translator.decoder.refresh()
        if number % 10 == 0:
            translator.translate(pair.source)
        used.append((len(os.listdir("/proc/self/fd")), private_memory()))
    rows = []
    quarter = additions // 4
    for first, until in ((0, quarter), (quarter, 2 * quarter), (2 * quarter, additions)):
        some = used[first:until]
        figures = {"open files": max(files for files, _ in some), "MB": max(memory for _, memory in some)}
        print(f"growth: up to {until:,} additions {figures}, {len(store.manifest.segments)} segments", flush=True)
        rows.append(figures)
    files, memory = (rows[-1][name] - rows[0][name] for name in ("open files", "MB"))
    what = f"at most in additions {2 * quarter + 1:,} to {additions:,}, beyond those of the first {quarter:,}"
    return [
        Row(f"open files {what}", Ratio.over([files]), options.goal(FILES), True, {"at most": rows}),
        Row(f"MB of memory {what}", Ratio.over([memory]), options.goal(MEGABYTES), True, {"at most": rows}),
    ]


def private_memory() -> float:
    """MB of this process; pages of files that are mapped do not count."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon:")]
    return int(line.split()[1]) / 1024


def search(index: Any, parts: Sequence[Any]) -> None:
    for part in parts:
        index.search(part, K)


def processor_seconds(work: Callable[[], object]) -> float:
    """What some work takes."""
    start = time.process_time()
    work()
    return time.process_time() - start


def in_turns(own: Callable[[], object], other: Callable[[], object], rounds: int) -> Ratio:
    """Processor seconds of one against those of the other, in turns."""
    pairs = [(processor_seconds(own), processor_seconds(other)) for _ in range(rounds + 1)][1:]
    return Ratio.over([mine / theirs for mine, theirs in pairs])


if __name__ == "__main__":
    main()
