"""Does an index on a Milvus server translate as one of faiss of the same kind?  The measurement behind docs/milvus.md.

    python benchmarks/milvus_quality.py --into docs/milvus.md
    python benchmarks/milvus_quality.py --address http://127.0.0.1:19530 --sentences 12000
    python benchmarks/milvus_quality.py --kinds graph

Builds a datastore of the demo's text (once), the same kinds of index with faiss and on the server, and translates the
demo's test text and further verses that the datastore lacks with each, greedily: two indexes that are equally good
differ by chance, and the more sentences, the less.  How much, a paired bootstrap tells (p), and a second index of faiss
that learned its lists and codes from other keys.  k, temperature and weight are for each index what a build with it
would have measured: distances out of codes depend on how well these were learned.  A kind that was measured before is
not measured again at the same commit.  Without an address the server of the PyPI package `milvus` is started.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from figures import commit, write_figures

from knn_seq import Datastore, Translator
from knn_seq.corpus import SentencePair
from knn_seq.decoding import KnnDecoder
from knn_seq.demo.corpus import load_demo_corpus
from knn_seq.demo.run import MODEL, write_tsv
from knn_seq.likelihood import calibrate
from knn_seq.metrics import METRICS
from knn_seq.models import Model, load_model
from knn_seq.runtime.stopwatch import Stopwatch
from knn_seq.settings import BuildSettings, ModelSettings

GOAL = 0.3  # BLEU that the two may differ
LISTS, NPROBE, K = 256, 32, 64
FIXED = {"combiner": "fixed"}  # each index has settings of its own, and one combiner
BATCH = 64  # sentences: a way to the server and back for each step of all of them
KINDS = {
    "IVF with PQ": ("IVF{lists},PQ64", "IVF_PQ(nlist={lists},m=64)"),
    "graph": ("HNSW32", "HNSW(M=32,efConstruction=40)"),  # faiss makes graphs with 40
}
OTHER_KINDS = {"IVF with SQ8": ("IVF{lists},SQ8", "IVF_SQ8(nlist={lists})"), "exact": ("Flat", "FLAT")}  # if asked for
SENTENCES, TEST_SENTENCES = 6_000, 500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--address", help="of a server (default: one is started)")
    parser.add_argument("--sentences", type=int, default=SENTENCES, help="of the datastore")
    parser.add_argument("--test-sentences", type=int, default=TEST_SENTENCES, help="that are translated")
    parser.add_argument("--kinds", nargs="+", choices=[*KINDS, *OTHER_KINDS], default=list(KINDS))
    parser.add_argument("--folder", type=Path, default=Path("results/milvus"))
    parser.add_argument("--into", type=Path, help="a page with a place for the table")
    arguments = parser.parse_args()

    corpus = load_demo_corpus()
    held, others = corpus.train[: arguments.sentences], corpus.train[arguments.sentences :]
    test = [*corpus.test, *others][: arguments.test_sentences]
    train = arguments.folder / f"train-{arguments.sentences}.tsv"
    write_tsv(train, held)
    model = load_model(ModelSettings(MODEL))
    store = Datastore.build(arguments.folder / f"store-{arguments.sentences}", model, train)
    results = arguments.folder / f"milvus-{commit()}-{arguments.sentences}-{len(test)}.json"
    rows: dict[str, dict[str, dict[str, Any]]] = json.loads(results.read_text()) if results.exists() else {}
    with _server(arguments.address, arguments.folder) as address:
        for kind, (ours, theirs) in {**KINDS, **OTHER_KINDS}.items():
            if kind in rows or kind not in arguments.kinds:
                continue
            recipes = {"faiss": ours.format(lists=LISTS), "milvus": theirs.format(lists=LISTS)}
            if "{lists}" in ours:
                recipes["faiss again"] = ours.format(lists=LISTS - 1)  # so it learns from other keys
            rows[kind] = {
                name: {
                    "recipe": recipe,
                    **_built(store, model, name, f"milvus:{recipe}@{address}" if name == "milvus" else recipe),
                }
                for name, recipe in recipes.items()
            }
            systems = {
                name: {"index": name, **FIXED, **_options(recipes[name]), **rows[kind][name]["settings"]}
                for name in recipes
            }
            for name, figures in _translated(Translator(Datastore(store.path), model), test, systems).items():
                rows[kind][name] |= figures
            results.write_text(json.dumps(rows, indent=2))
            print(_report(rows, len(store), len(test)), flush=True)
    if arguments.into:
        text = _report({kind: rows[kind] for kind in (*KINDS, *OTHER_KINDS) if kind in rows}, len(store), len(test))
        write_figures(arguments.into, {"milvus": text})


def _options(recipe: str) -> dict[str, Any]:
    """Search options for an index with lists; a graph has none of them."""
    return {"index_options": {"nprobe": NPROBE} if "IVF" in recipe else {}}


def _built(store: Datastore, model: Model, name: str, recipe: str) -> dict[str, Any]:
    """How long building the index takes, how much of exact search it finds, and the settings that suit it."""
    start = time.perf_counter()
    store.add_index(recipe, name)
    seconds = time.perf_counter() - start
    options = _options(recipe)
    recall = store.check_index(name, K, 128, options["index_options"]).recall
    decoder = KnnDecoder(store, model, {"index": name, **FIXED, **options})
    measured = calibrate(decoder, decoder.settings(), BuildSettings.calibration_sentences)
    settings = {setting: measured[setting] for setting in ("k", "temperature", "weight")}
    return {"build": seconds, "recall": recall, "settings": settings}


def _translated(
    translator: Translator, test: list[SentencePair], systems: dict[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """The score of each system, whether it differs from the first's by chance, and how long it takes."""
    sources, references = [pair.source for pair in test], [pair.target for pair in test]
    outputs, seconds, searching = {}, {}, {}
    for name, settings in systems.items():
        translator.stopwatch = Stopwatch()
        start = time.perf_counter()
        outputs[name] = translator.translate(sources, beam_size=1, batch_size=BATCH, **settings)
        seconds[name] = time.perf_counter() - start
        searching[name] = translator.stopwatch.seconds["search"] / seconds[name]
    return {
        name: {"bleu": score.value, "p": score.p_value, "seconds": seconds[name], "search": searching[name]}
        for name, score in METRICS.get("bleu")().scores(outputs, references, sources).items()
    }


@contextmanager
def _server(address: str | None, folder: Path) -> Iterator[str]:
    if address is not None:
        yield address
        return
    milvus = import_module("milvus")
    server = milvus.MilvusServer(milvus.MilvusServerConfig(data_dir=str(folder.absolute() / "server")))
    server.start()
    try:
        yield f"http://127.0.0.1:{server.listen_port}"
    finally:
        server.stop()


def _report(rows: dict[str, dict[str, dict[str, Any]]], entries: int, sentences: int) -> str:
    lines = [
        f"{entries:,} entries, {sentences:,} test sentences, greedy, combiner `fixed`, nprobe {NPROBE}.",
        "",
        f"| index | recall@{K} | k, temperature, weight | BLEU | difference | p | build, s | translate, s | search |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for systems in rows.values():
        for name, row in systems.items():
            other = name != "faiss"
            difference = f"{row['bleu'] - systems['faiss']['bleu']:+.2f} | {row['p']:.3f}" if other else " | "
            settings = ", ".join(f"{value:g}" for value in row["settings"].values())
            lines.append(
                f"| {name.partition(' ')[0]} `{row['recipe']}` | {row['recall']:.3f} | {settings} | "
                f"{row['bleu']:.2f} | {difference} | {row['build']:.0f} | {row['seconds']:.0f} | {row['search']:.0%} |"
            )
    largest = max(abs(systems["milvus"]["bleu"] - systems["faiss"]["bleu"]) for systems in rows.values())
    verdict = "reached" if largest <= GOAL else "**not reached**"
    return "\n".join(
        [*lines, "", f"Milvus and faiss differ by {largest:.2f} BLEU at most; the goal, {GOAL:g}, is {verdict}."]
    )


if __name__ == "__main__":
    main()
