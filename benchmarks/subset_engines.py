"""Engines that search a subset of the keys on a CPU, on real keys: ours against torch over look-up tables.

Subsets are those that the datastore's sentence search finds for held-out sentences, queries their decoder states.

    python benchmarks/subset_engines.py --folder results/speed/firefox-1m   # as decoding_speed.py left it
    python benchmarks/subset_engines.py --folder results/speed/firefox-tiny --entries 20000 --sentences 2
"""

from __future__ import annotations

from knn_seq.runtime.environment import limit_spinning

limit_spinning()  # before torch is imported

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from figures import markdown, write_figures
from numpy.typing import NDArray
from speed_models import TOKENS_PER_SENTENCE, speed_model, speed_store
from torch import Tensor

from knn_seq.index.recipe import REFINE_KEYS
from knn_seq.models import Source, TokenPair
from knn_seq.sentences.open import open_sentences
from knn_seq.subset.codec import SAMPLE, KeyCodec
from knn_seq.subset.subset_index import SubsetIndex, TorchSubsets

K, BEAMS, REPEATS = 64, 5, 15
Search = Callable[[Tensor, Tensor], NDArray[np.int64]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("results/speed/firefox-1m"))
    parser.add_argument("--subset-size", type=int, default=512)
    parser.add_argument("--sentences", type=int, default=32, help="in the large batch")
    parser.add_argument("--entries", type=int, default=1_100_000, help="of the datastore, if it is built")
    parser.add_argument("--into", type=Path, help="a page with a place for the table")
    arguments = parser.parse_args()

    model = speed_model("firefox")
    store, test = speed_store(
        arguments.folder, model, arguments.entries, arguments.entries // TOKENS_PER_SENTENCE, sentence_search="encoder"
    )
    chosen = [pair for pair in test if len(pair.target.split()) > BEAMS][: arguments.sentences]
    tokens = model.tokenizer.encode_sources([pair.source for pair in chosen])
    sources = [Source(pair.source, own) for pair, own in zip(chosen, tokens, strict=True)]
    sentences = open_sentences(store, model).nearest(sources, arguments.subset_size)
    targets = model.tokenizer.encode_targets([pair.target for pair in chosen])
    queries = torch.cat([model.keys([TokenPair(s.tokens, t)])[:BEAMS] for s, t in zip(sources, targets, strict=True)])
    rows = torch.arange(len(queries)) // BEAMS
    exact = SubsetIndex(store.keys, store.values)
    entries = [exact._entries(row) for row in sentences]
    wanted = exact.subsets(sentences).search(queries, rows, K).ids.numpy()
    size = np.mean([len(own) for own in entries])
    title = f"Milliseconds of a step; {size:,.0f} keys in a subset, k {K}, {BEAMS} queries a sentence."
    head = ("engine", "set-up of a sentence", "1 sentence", f"{len(chosen)} sentences", f"recall@{K}")

    engines: dict[str, Callable[[list[int]], Search]] = {}
    for recipe in ("PCA128,PQ64x4,Refine(keys)", "PCA128,PQ64x4", "PQ64", "PQ64,Refine(keys)"):
        index = coded(store.keys, exact, recipe)
        engines[f"faiss, {recipe}"] = partial(ours, index, sentences)
        if recipe == "PQ64":
            engines["torch, gather and sum, PQ64"] = partial(gather_and_sum, index, entries)
            engines["torch, embedding bag, PQ64"] = partial(embedding_bag, index, entries)
    engines["torch, one product, float16 keys (GPU path)"] = partial(product, exact, entries)
    lines = [(name, *measured(make, queries, rows, wanted, len(chosen))) for name, make in engines.items()]
    write_figures(arguments.into, {"subset-engines": f"{title}\n\n{markdown(head, lines)}"})


def measured(
    make: Callable[[list[int]], Search],
    queries: Tensor,
    rows: Tensor,
    wanted: NDArray[np.int64],
    count: int,
) -> tuple[str, ...]:
    """What one engine costs, and how much it finds."""
    started = time.perf_counter()
    search = make(list(range(count)))
    set_up = 1000 * (time.perf_counter() - started) / count
    alone = make([0])
    one, many = (
        statistics.median(timed(partial(way, queries[:last], rows[:last])) for _ in range(REPEATS))
        for way, last in ((alone, BEAMS), (search, len(queries)))
    )
    found = search(queries, rows)
    recall = np.mean([len(set(a) & set(b)) / K for a, b in zip(found.tolist(), wanted.tolist(), strict=True)])
    return f"{set_up:.2f}", f"{one:.2f}", f"{many:.1f}", f"{recall:.3f}"


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - started)


def coded(keys: NDArray[np.float16], exact: SubsetIndex, recipe: str) -> SubsetIndex:
    """The keys as codes."""
    codec = KeyCodec(keys.shape[1], "l2", recipe.removesuffix(REFINE_KEYS))
    sample = np.sort(np.random.default_rng(0).choice(len(keys), min(SAMPLE, len(keys)), replace=False))
    codec.train(torch.from_numpy(keys[sample].astype(np.float32)))
    step = 1 << 16
    starts = range(0, len(keys), step)
    codes = [codec.encode(torch.from_numpy(keys[start : start + step].astype(np.float32))) for start in starts]
    return SubsetIndex(keys, exact.values, "l2", recipe, codec, np.concatenate(codes))


def ours(index: SubsetIndex, sentences: NDArray[np.int64], numbers: list[int]) -> Search:
    subsets = index.subsets(sentences[numbers])
    return lambda queries, rows: subsets.search(queries, rows, K).ids.numpy()


def product(index: SubsetIndex, entries: list[NDArray[np.int64]], numbers: list[int]) -> Search:
    subsets = TorchSubsets(index, [entries[number] for number in numbers], torch.device("cpu"))
    return lambda queries, rows: subsets.search(queries, rows, K).ids.numpy()


def gather_and_sum(index: SubsetIndex, entries: list[NDArray[np.int64]], numbers: list[int]) -> Search:
    """All sentences padded to the largest subset; a table a query, looked up for every code and summed."""
    codes, ids = padded_codes(index, entries, numbers)

    def search(queries: Tensor, rows: Tensor) -> NDArray[np.int64]:
        tables = look_up_tables(index, queries)  # (rows, subspaces, 256)
        distances = torch.stack(
            [table.gather(1, codes[row].T).sum(0) for table, row in zip(tables, rows.tolist(), strict=True)]
        )
        return nearest(distances, ids[rows])

    return search


def embedding_bag(index: SubsetIndex, entries: list[NDArray[np.int64]], numbers: list[int]) -> Search:
    """The tables of a sentence's queries as the weights of an embedding: one look-up serves all its beams."""
    codes, ids = padded_codes(index, entries, numbers)
    shifted = codes + 256 * torch.arange(codes.shape[2])

    def search(queries: Tensor, rows: Tensor) -> NDArray[np.int64]:
        tables = look_up_tables(index, queries).flatten(1)  # (rows, subspaces · 256)
        parts = [
            torch.nn.functional.embedding_bag(shifted[row], tables[rows == row].T.contiguous(), mode="sum").T
            for row in sorted(set(rows.tolist()))
        ]
        return nearest(torch.cat(parts), ids[rows])

    return search


def padded_codes(index: SubsetIndex, entries: list[NDArray[np.int64]], numbers: list[int]) -> tuple[Tensor, Tensor]:
    assert index.codes is not None
    chosen = [torch.from_numpy(entries[number]) for number in numbers]
    ids = torch.nn.utils.rnn.pad_sequence(chosen, batch_first=True, padding_value=-1)
    return torch.from_numpy(index.codes[ids.clamp(min=0).numpy()]).long(), ids


def look_up_tables(index: SubsetIndex, queries: Tensor) -> Tensor:
    assert index.codec is not None
    centroids = index.codec._quantizer(torch.device("cpu")).centroids  # (subspaces, 256, part)
    parts = index.codec.transform(queries.float()).view(len(queries), len(centroids), 1, -1)
    return (parts - centroids).square().sum(3)


def nearest(distances: Tensor, ids: Tensor) -> NDArray[np.int64]:
    found = distances.masked_fill(ids < 0, torch.inf).topk(K, largest=False).indices
    return ids.gather(1, found).numpy()


if __name__ == "__main__":
    main()
