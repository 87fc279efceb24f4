"""Which index finds how much, how fast, in how many bytes: the measurement behind docs/indexes.md.

    python benchmarks/indexes.py --into docs/indexes.md
    python benchmarks/indexes.py --corpus it.tsv.gz --columns 2,3 --folder results/it
    python benchmarks/indexes.py --sentences 300 --test-sentences 20 --rounds 1 --folder results/tiny   # does it run?

Builds a datastore of the corpus without its test sentences (once), builds every recipe over its keys, and searches them
with the decoder's states over the test sentences, in alternating rounds.  Every ratio is against the paper's kind of
index, IVF,PQ64, made by `index.train` and `index.add` of the faiss wheel as it comes, in a process of its own.  {lists}
in a recipe stands for the default number of lists.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from figures import write_figures
from numpy.typing import NDArray
from speed_models import DEMO_CORPUS

from knn_seq import Datastore, Translator
from knn_seq.cli.options import columns_of
from knn_seq.corpus import SentencePair, open_corpus, split_corpus
from knn_seq.demo.run import write_tsv
from knn_seq.evaluate import compare
from knn_seq.index import INDEXES, SearchIndex, default_recipe
from knn_seq.index.exact import exact_search
from knn_seq.index.recipe import lists_for, training_size
from knn_seq.models import TokenPair
from knn_seq.storage.keys import open_keys

K, NPROBE = 64, 32
PAPER = "IVF{lists},PQ64"
RECIPES = (
    "default",
    "IVF{lists},PQ64x4fs,Refine(keys)",
    "OPQ64,IVF{lists},PQ64",
    "IVF{lists},RaBitQfs,Refine(keys)",
    "IVF{lists},SQ8",
    "HNSW32,SQ8",
    "Flat",
)
LEAST_RATIO = 0.1  # seconds or milliseconds; how many times less is no news
COLUMNS = ("index", "bytes/key", "train s", "add s", "5 queries ms", "160 queries ms", "recall@64", "BLEU")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", default=DEMO_CORPUS, help="parallel text (default: the demo's)")
    parser.add_argument("--columns", help="of source and target (default 1,2)")
    parser.add_argument("--model", default="firefox:pt-en")
    parser.add_argument("--key", default="ffn_in", help="another module gives keys of another width")
    parser.add_argument("--sentences", type=int, default=12_000, help="of the datastore")
    parser.add_argument("--test-sentences", type=int, default=250)
    parser.add_argument("--folder", type=Path, default=Path("results/indexes"))
    parser.add_argument("--recipes", nargs="*", default=RECIPES, help="beside the paper's")
    parser.add_argument("--bleu", nargs="*", default=("default",), help="recipes to translate with, beside the paper's")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--recall-sizes", type=int, nargs="*", default=(), help="recall of the default with fewer keys")
    parser.add_argument("--into", type=Path, help="a page with a place for the table")
    parser.add_argument("--plain", nargs=3, metavar=("KEYS", "RECIPE", "FILE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.plain:
        print(json.dumps(_plain_faiss(*arguments.plain)))
        return

    store, test = _store(arguments)
    keys, queries = store.keys, _queries(store, test)
    entries, dimension = keys.shape
    print(f"{entries:,} keys of dimension {dimension} ({arguments.key}), {len(queries):,} queries", flush=True)
    exact = exact_search(keys, queries, K, "l2").ids
    chosen = {"default": default_recipe(entries, dimension)}
    templates = [PAPER, *arguments.recipes]
    recipes = [chosen.get(template, template.format(lists=lists_for(entries))) for template in templates]
    paper = f"plain faiss {recipes[0]}"
    indexes: dict[str, SearchIndex] = {}
    rows: dict[str, dict[str, float]] = {}
    for name, recipe in {paper: recipes[0], **dict(zip(recipes, recipes, strict=True))}.items():
        built = _built_plainly(store, recipe, arguments.folder) if name == paper else _build(keys, recipe)
        indexes[name], train_seconds, add_seconds = built
        found = indexes[name].search(queries, K).ids
        size = indexes[name].memory / entries
        rows[name] = {"bytes": size, "train": train_seconds, "add": add_seconds, "recall": _recall(exact, found)}
        print(name, rows[name], flush=True)
    for count in (5, 160):
        searches = {name: _searching(index, queries[:count]) for name, index in indexes.items()}
        for name, milliseconds in _alternating(searches, arguments.rounds).items():
            rows[name][f"ms{count}"] = milliseconds
    indexes.clear()
    scored = [PAPER, *arguments.bleu] if arguments.bleu else []
    for recipe, score in _bleu(store, test, [recipes[templates.index(template)] for template in scored]).items():
        rows[recipe]["bleu"] = score
    ours, theirs = (rows[name]["train"] + rows[name]["add"] for name in (recipes[0], paper))
    summary = f"{entries:,} keys of dimension {dimension}; BLEU on {len(test):,} sentences, greedy, `fixed`, k {K}."
    faster = f"Training and adding `{recipes[0]}` is {theirs / ours:.1f} times as fast as plain faiss."
    write_figures(arguments.into, {"indexes": f"{summary}\n\n{_table(rows, paper)}\n\n{faster}"})
    (arguments.folder / "indexes.json").write_text(json.dumps(rows, indent=2))
    for size in arguments.recall_sizes:
        some = keys[np.sort(np.random.default_rng(0).choice(entries, size, replace=False))]
        recipe = default_recipe(size, dimension)
        found = _build(some, recipe)[0].search(queries, K).ids
        print(
            f"{size:,} keys: {recipe}, recall {_recall(exact_search(some, queries, K, 'l2').ids, found):.3f}",
            flush=True,
        )


def _store(arguments: argparse.Namespace) -> tuple[Datastore, list[SentencePair]]:
    lines = open_corpus(arguments.corpus, columns=columns_of(arguments.columns))
    pairs = [line for line in lines if isinstance(line, SentencePair)]
    train, _, test = split_corpus(pairs, (0, arguments.test_sentences), 1)
    write_tsv(arguments.folder / "train.tsv", train[: arguments.sentences])
    folder = arguments.folder / "store"
    return Datastore.build(folder, arguments.model, arguments.folder / "train.tsv", key=arguments.key), test


def _queries(store: Datastore, test: list[SentencePair]) -> NDArray[np.float32]:
    """The states of the decoder while it reads sentences that are not in the datastore."""
    model = store.load_model()
    sources = model.tokenizer.encode_sources([pair.source for pair in test])
    targets = model.tokenizer.encode_targets([pair.target for pair in test])
    states = [model.keys([TokenPair(*pair)]).float().cpu() for pair in zip(sources[:60], targets[:60], strict=True)]
    every = torch.cat(states)
    chosen = torch.randperm(len(every), generator=torch.Generator().manual_seed(0))[:320]
    queries: NDArray[np.float32] = every[chosen].numpy()
    return queries


def _build(keys: NDArray[Any], recipe: str) -> tuple[SearchIndex, float, float]:
    """The index, and the seconds that training and adding took."""
    index = INDEXES.get("faiss")(keys.shape[1], "l2", recipe)
    start = time.perf_counter()
    index.train_on_sample(keys)
    middle = time.perf_counter()
    step = max((64 << 20) // (4 * keys.shape[1]), 1)
    for first in range(0, len(keys), step):
        index.add(keys[first : first + step])
    end = time.perf_counter()
    if index.needs_keys:
        index.attach_keys(keys)
    return index, middle - start, end - middle


def _built_plainly(store: Datastore, recipe: str, folder: Path) -> tuple[SearchIndex, float, float]:
    """The index of faiss as it comes, and the seconds that `train` and `add` took."""
    from knn_seq.index.faiss import FaissIndex
    from knn_seq.index.faiss_library import faiss

    file = folder / "plain.faiss"
    command = [sys.executable, __file__, "--plain", str(store.base.keys_path), recipe, str(file)]
    seconds = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    index = FaissIndex(store.keys.shape[1], recipe=recipe, nprobe=NPROBE)
    index.index = faiss.read_index(str(file))
    file.unlink()
    return index, seconds["train"], seconds["add"]


def _plain_faiss(keys_path: str, recipe: str, file: str) -> dict[str, float]:
    """What the other process does: the same sample, all keys at once, and no setting touched."""
    import faiss

    keys = open_keys(Path(keys_path))
    rows = np.sort(np.random.default_rng(0).choice(len(keys), training_size(recipe, len(keys)), replace=False))
    sample, every = keys[rows].astype(np.float32), np.array(keys, np.float32)
    index = faiss.index_factory(keys.shape[1], recipe)
    start = time.perf_counter()
    index.train(sample)
    middle = time.perf_counter()
    index.add(every)
    end = time.perf_counter()
    faiss.write_index(index, file)
    return {"train": middle - start, "add": end - middle}


def _searching(index: SearchIndex, queries: NDArray[np.float32]) -> Callable[[], object]:
    return lambda: index.search(queries, K)


def _recall(exact: torch.Tensor, found: torch.Tensor) -> float:
    return (exact.unsqueeze(2) == found.unsqueeze(1)).any(2).float().mean().item()


def _alternating(searches: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The median milliseconds of each search, all of them once in every round."""
    times: dict[str, list[float]] = {name: [] for name in searches}
    for _ in range(rounds):
        for name, search in searches.items():
            search()  # what the others left in the caches is theirs
            start = time.perf_counter()
            search()
            times[name].append(1000 * (time.perf_counter() - start))
    return {name: statistics.median(measured) for name, measured in times.items()}


def _bleu(store: Datastore, test: list[SentencePair], recipes: list[str]) -> dict[str, float]:
    systems = {}
    for recipe in dict.fromkeys(recipes):
        store.add_index(recipe)
        systems[recipe] = {"index": recipe, "combiner": "fixed", "k": K}
    if not systems:
        return {}
    translator = Translator(Datastore(store.path), beam_size=1)
    sources, references = [pair.source for pair in test], [pair.target for pair in test]
    comparison = compare(translator, sources, references, systems, ("bleu",))
    return {system.name: system.scores["BLEU"].value for system in comparison.systems}


def _table(rows: dict[str, dict[str, float]], paper: str) -> str:
    """Every figure, and behind it how many times better than the paper's index."""

    def cell(row: dict[str, float], name: str, digits: int, ratio: bool) -> str:
        if name not in row:
            return ""
        text = f"{row[name]:.{digits}f}"
        return text + (f" ({rows[paper][name] / row[name]:.1f}×)" if ratio and row[name] >= LEAST_RATIO else "")

    lines = ["| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
    for recipe, row in rows.items():
        cells = [
            f"`{recipe}`",
            cell(row, "bytes", 0, False),
            cell(row, "train", 1, True),
            cell(row, "add", 1, True),
            cell(row, "ms5", 2, True),
            cell(row, "ms160", 1, True),
            cell(row, "recall", 3, False),
            cell(row, "bleu", 2, False),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
