"""Which sentences to search: BLEU of subset kNN-MT with every sentence search against full kNN-MT, and their cost.

Verses of the demo's text, others of it for testing, Firefox's model, greedy.  Also prints what a translation memory
read on the fly gives.  A name behind --searches is what `knn-seq build --sentence-search` takes;
`wordllama` stands for the static word vectors of that package (MIT), made into a sentence-transformers model.

    pip install wordllama scikit-learn sentence-transformers
    python benchmarks/sentence_searches.py --folder results/sentences
"""

from __future__ import annotations

from knn_seq.runtime.environment import limit_spinning

limit_spinning()  # before torch is imported

import argparse
import json
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from figures import markdown, write_figures
from speed_models import speed_model, speed_store

from knn_seq import Datastore, Translator
from knn_seq.corpus import SentencePair
from knn_seq.evaluate import compare
from knn_seq.models import Model

NO_COPIES = 1  # entries are as many as the sentences have


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("results/sentences"))
    parser.add_argument("--searches", nargs="+", default=["encoder", "bm25", "tfidf"])
    parser.add_argument("--sizes", nargs="+", type=int, default=[64, 512])
    parser.add_argument("--memory-sizes", nargs="*", type=int, default=[16])
    parser.add_argument("--sentences", type=int, default=12_000, help="of the datastore")
    parser.add_argument("--test-sentences", type=int, default=250)
    parser.add_argument("--into", type=Path, help="a page with a place for the table")
    arguments = parser.parse_args()

    model = speed_model("firefox")
    store, test = speed_store(
        *(arguments.folder, model, NO_COPIES, arguments.sentences), sentence_search="encoder", calibration_sentences=256
    )
    test = test[: arguments.test_sentences]
    rows = [
        *measured(Translator(store, model), test, {"base": {"weight": 0.0}, "full": {"retriever": "full"}}),
    ]
    for name in arguments.searches:
        started = time.perf_counter()
        prepare(store, model, name, arguments.folder)
        seconds = time.perf_counter() - started
        systems = {f"subset {name}, n {n}": {"retriever": "subset", "subset_size": n} for n in arguments.sizes}
        rows += [row | {"prepared_seconds": seconds} for row in measured(Translator(store.path, model), test, systems)]
    if arguments.memory_sizes:
        started = time.perf_counter()
        translator = Translator(model=model, translation_memory=arguments.folder / "train.tsv")
        seconds = time.perf_counter() - started
        print(f"memory ready after {seconds:.1f} s: {translator.decoder.settings()}")
        systems = {f"memory, n {n}": {"subset_size": n} for n in arguments.memory_sizes}
        rows += [row | {"prepared_seconds": seconds} for row in measured(translator, test, systems)]
    (arguments.folder / "sentence_searches.json").write_text(json.dumps(rows, indent=2))
    table = [[row["name"], *(f"{row[score]:.2f}" for score in ("bleu", "chrf"))] for row in rows]
    title = f"{len(store):,} entries, {len(test):,} test sentences, greedy; k, τ and λ as the build measured them."
    write_figures(arguments.into, {"sentence-searches": f"{title}\n\n{markdown(['retriever', 'BLEU', 'chrF'], table)}"})


def measured(
    translator: Translator, test: list[SentencePair], systems: dict[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    """Print and return the figures of some systems, with greedy search."""
    sources, references = [pair.source for pair in test], [pair.target for pair in test]
    greedy = {name: {**settings, "beam_size": 1} for name, settings in systems.items()}
    comparison = compare(translator, sources, references, greedy)
    print(comparison.table())
    return [system.to_dict() for system in comparison.systems]


def prepare(store: Datastore, model: Model, name: str, folder: Path) -> None:
    """Prepare the datastore for subsets with a sentence search."""
    spec = f"sentence-transformers:{word_vectors(folder / 'wordllama')}" if name == "wordllama" else name
    store.prepare_subset(spec, model=model)


def word_vectors(path: Path) -> Path:
    """The static word vectors of the package wordllama as a sentence-transformers model."""
    if not path.exists():
        package = Path(str(import_module("wordllama").__file__)).parent
        weights = import_module("safetensors.torch").load_file(package / "weights" / "l2_supercat_256.safetensors")
        tokenizer = import_module("tokenizers").Tokenizer.from_file(
            str(package / "tokenizers" / "l2_supercat_tokenizer_config.json")
        )
        library = import_module("sentence_transformers")
        module = import_module("sentence_transformers.models").StaticEmbedding(
            tokenizer, embedding_weights=next(iter(weights.values())).float().numpy()
        )
        library.SentenceTransformer(modules=[module], device="cpu").save(str(path))
    return path


if __name__ == "__main__":
    main()
