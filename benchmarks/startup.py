"""How long it takes until a command does its work.

    python benchmarks/startup.py --entries 10000000

A round runs every command in a new process, one after the other, so that whatever else the machine does hits all of
them alike.  Seconds are those of the clock, and beside them those of the processor: on a busy machine only the second
can be compared.  The big datastore is made up: its index has the default recipe for its size and random codes.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rounds import Options, Ratio, Row, command_line, options_of
from speed_models import DEMO_CORPUS

from knn_seq.corpus import SentencePair, open_corpus
from knn_seq.demo.run import write_tsv
from knn_seq.runtime.environment import limit_spinning
from knn_seq.storage.atomic import write_json
from knn_seq.storage.flat import create_flat
from knn_seq.storage.pairs import PairInfo, PairWriter
from knn_seq.storage.ragged import RaggedWriter
from knn_seq.storage.segment import Segment
from knn_seq.storage.text import TextWriter

SENTENCE = "No princípio criou Deus os céus e a terra."
BUILT_SENTENCES = 1_000
TOKENS_PER_SENTENCE = 25
GOAL_TRANSLATE, GOAL_OPEN = 4.0, 2.0  # seconds
ENTRIES, QUICK_ENTRIES = 10_000_000, 200_000
TRANSLATE, OPENING = "knn-seq translate, one sentence, Firefox model", "opening {:,} entries"

OPEN = """
import sys, time
from knn_seq.runtime.environment import limit_spinning
limit_spinning()
import knn_seq.retrieve.full, knn_seq.index.faiss
from knn_seq import Datastore
start, cpu = time.perf_counter(), time.process_time()
store = Datastore(sys.argv[1])
retriever = knn_seq.retrieve.full.FullRetriever.open(store, None, store.search_settings)
assert len(retriever.index) == len(retriever.values)
print(time.perf_counter() - start, time.process_time() - cpu)
"""


def main() -> None:
    """Print the median of each, and write all of them as JSON."""
    parser = command_line(__doc__)
    parser.add_argument("--entries", type=int, default=ENTRIES, help="of the big datastore, 0.55 KB of disk each")
    arguments = parser.parse_args()
    measured = timed(arguments.folder / "startup", options_of(arguments).rounds, arguments.entries)
    print("| median | seconds | of the processor |\n|---|---|---|")
    for what, pairs in measured.items():
        wall, processor = (statistics.median(column) for column in zip(*pairs, strict=True))
        print(f"| {what} | {wall:.2f} | {processor:.2f} |")


def measure(folder: Path, options: Options) -> list[Row]:
    """Rows: seconds over those that it may take."""
    entries = QUICK_ENTRIES if options.quick else ENTRIES
    measured = timed(folder / "startup", options.rounds, entries)
    goals = {TRANSLATE: GOAL_TRANSLATE, OPENING.format(entries): GOAL_OPEN}
    return [
        Row(
            f"{what}: seconds / {allowed:g}",
            Ratio.over([wall / allowed for wall, _ in measured[what]]),
            options.goal(1.0),
            True,
            {"seconds": measured},
        )
        for what, allowed in goals.items()
    ]


def timed(folder: Path, rounds: int, entries: int) -> dict[str, list[tuple[float, float]]]:
    """Seconds of the clock and of the processor in each round."""
    folder.mkdir(parents=True, exist_ok=True)
    small = small_store(folder)
    big = big_store(folder / f"big-{entries}", small, entries)
    (folder / "in.txt").write_text(SENTENCE + "\n", encoding="utf-8")
    python, command = [sys.executable, "-c"], [sys.executable, "-m", "knn_seq.cli.main"]
    generate = "import torch; from transformers import PreTrainedModel, GenerationMixin"
    runs = {
        "knn-seq --help": [*command, "--help"],
        "import torch": [*python, "import torch"],
        "import torch and generate() of Transformers": [*python, generate],
        TRANSLATE: [*command, "translate", str(small), "--quiet", "--input", str(folder / "in.txt")],
        OPENING.format(entries): [*python, OPEN, str(big)],
    }
    measured: dict[str, list[tuple[float, float]]] = {what: [] for what in runs}
    for _ in range(rounds):
        for what, run in runs.items():
            measured[what].append(seconds(run, inside=what.startswith("opening")))
    write_json(folder / "startup.json", {"seconds, of the processor": measured})
    return measured


def seconds(run: Sequence[str], inside: bool) -> tuple[float, float]:
    """Of the clock and of the processor, of a complete process or as it says itself (`inside`)."""
    before, start = os.times(), time.perf_counter()
    done = subprocess.run(run, check=True, capture_output=True, text=True)
    wall, after = time.perf_counter() - start, os.times()
    if inside:
        own_wall, own_processor = map(float, done.stdout.split())
        return own_wall, own_processor
    processor = after.children_user + after.children_system - before.children_user - before.children_system
    return wall, processor


def small_store(folder: Path) -> Path:
    """A datastore of the Firefox model out of the demo's text."""
    from knn_seq import Datastore

    pairs = [line for line in open_corpus(DEMO_CORPUS) if isinstance(line, SentencePair)]
    write_tsv(folder / "train.tsv", pairs[:BUILT_SENTENCES])
    Datastore.build(folder / "small", "firefox:pt-en", folder / "train.tsv", calibration_sentences=0)
    return folder / "small"


def big_store(path: Path, like: Path, entries: int) -> Path:
    """A datastore of so many entries with the manifest of another one: nothing in it is real but its sizes."""
    if (path / "datastore.json").exists():
        return path
    shutil.rmtree(path, ignore_errors=True)
    manifest = json.loads((like / "datastore.json").read_text())
    dimension = manifest["keys"]["dimension"]
    index = random_index(entries, dimension)
    index.save(path / "index" / "default")
    segment = Segment(path / "segments" / "1")
    segment.path.mkdir(parents=True)
    create_flat(segment.keys_path, {"keys": ((entries, dimension), np.float16)})
    sentences = entries // TOKENS_PER_SENTENCE
    lengths = np.full(sentences, TOKENS_PER_SENTENCE)
    lengths[-1] += entries - lengths.sum()
    with RaggedWriter(segment.values_path, {"": np.int32}) as writer:
        writer.extend((np.random.default_rng(0).integers(0, 30_000, entries, dtype=np.int32), lengths))
        writer.finish()
    shutil.copyfile(segment.values_path, segment.sources_path)
    with TextWriter(segment.text_path) as texts, PairWriter(segment.pairs_path) as pairs:
        texts.extend_texts([("", "")] * sentences)
        pairs.extend_pairs([PairInfo(str(number), "", "") for number in range(sentences)], [""] * sentences)
        texts.finish()
        pairs.finish()
    manifest["indexes"] = {"default": {"type": "faiss", **index.describe(), "folder": "index/default"}}
    manifest["default_index"] = "default"
    manifest["segments"] = {"1": {"sentences": sentences, "tokens": entries}}
    manifest["counts"] |= {"sentences": sentences, "tokens": entries}
    write_json(path / "datastore.json", manifest)
    return path


def random_index(entries: int, dimension: int) -> Any:
    """An index of the default recipe, filled with random codes: to train and fill a real one takes many minutes."""
    from knn_seq.index import INDEXES, default_recipe
    from knn_seq.index.faiss_library import faiss
    from knn_seq.index.faiss_library.layers import inverted_lists

    random = np.random.default_rng(0)
    index: Any = INDEXES.get("faiss")(dimension, "l2", default_recipe(entries, dimension))
    empty = inverted_lists(index.index)
    assert isinstance(empty, faiss.IndexIVFPQFastScan), "take more entries: so few are not divided into lists"
    width, subspaces, lists = empty.d, empty.pq.M, empty.nlist
    quantizer = faiss.IndexFlatL2(width)
    quantizer.add(random.standard_normal((lists, width), dtype=np.float32))
    plain = faiss.IndexIVFPQ(quantizer, width, lists, subspaces, 4)
    centroids = random.standard_normal(plain.pq.centroids.size()).astype(np.float32)
    faiss.copy_array_to_vector(centroids, plain.pq.centroids)
    plain.is_trained, plain.by_residual = True, False
    ids = np.array_split(random.permutation(entries), lists)
    for number, own in enumerate(ids):
        codes = random.integers(0, 256, (len(own), plain.code_size), dtype=np.uint8)
        plain.invlists.add_entries(number, len(own), faiss.swig_ptr(own), faiss.swig_ptr(codes))
    plain.ntotal = entries
    packed = faiss.IndexIVFPQFastScan(plain)
    projection = faiss.PCAMatrix(dimension, width)
    projection.train(random.standard_normal((4 * dimension, dimension), dtype=np.float32))
    index.index = faiss.IndexPreTransform(projection, packed)
    index.parts = (plain, quantizer, projection, packed)  # faiss does not own what Python made
    return index


if __name__ == "__main__":
    limit_spinning()
    main()
