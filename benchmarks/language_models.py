"""kNN-LM and RetoMaton: a small GPT-2 that was trained on one kind of text reads another.

    python benchmarks/language_models.py --into docs/language-models.md

The model learns, for a few minutes, from the documentation strings of installed Python packages; the datastore and the
test text are the English Bible of the demo.  What neighbours count is tuned on a part of their own.
"""

from __future__ import annotations

from knn_seq.runtime.environment import limit_spinning

limit_spinning()  # before torch is imported

import ast
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from figures import markdown, write_figures
from rounds import command_line, options_of

from knn_seq import Datastore, Translator
from knn_seq.build.clusters import store_clusters
from knn_seq.demo.corpus import load_demo_corpus
from knn_seq.language import perplexity, read_text, tune_text
from knn_seq.runtime.wording import count
from knn_seq.settings import SearchSettings

PACKAGES = ("torch", "transformers", "numpy", "sklearn", "scipy", "h5py", "hypothesis", "ray", "pymilvus")
VOCABULARY, WIDTH, LAYERS, WINDOW = 6000, 192, 4, 128
BATCH, RATE = 8, 1.5e-3
TRAIN_BYTES = 4 << 20
STORED_VERSES, DEV_VERSES, TEST_VERSES = 5000, 60, 80
POINTERS = (1, 4, 16)
CLUSTER_SIZE = 128
COMBINERS = ("fixed", "learned")
END = "<|endoftext|>"
SEEN = "tokens.txt"  # how many the model has learned from


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--minutes", type=float, default=2.0, help="of training, of CPU time")
    arguments = parser.parse_args()
    options = options_of(arguments)
    folder = arguments.folder / "language-model"
    folder.mkdir(parents=True, exist_ok=True)
    corpus = load_demo_corpus()
    verses = [pair.target for pair in (*corpus.train, *corpus.dev, *corpus.test)]
    test, dev = verses[-TEST_VERSES:], verses[-TEST_VERSES - DEV_VERSES : -TEST_VERSES]
    stored = verses[: -TEST_VERSES - DEV_VERSES][: 500 if options.quick else STORED_VERSES]
    for name, lines in {"store": stored, "dev": dev, "test": test}.items():
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    if not (folder / "model" / SEEN).exists():
        docs = documentation(1 << 18 if options.quick else TRAIN_BYTES)
        train_model(folder / "model", docs, "\n".join(stored), 0.1 if options.quick else arguments.minutes)
    tokens = int((folder / "model" / SEEN).read_text())
    store = Datastore.build(folder / "store", str(folder / "model"), text=folder / "store.txt")
    store_clusters(store, CLUSTER_SIZE)
    translator = Translator(store)
    tune_on(translator, folder / "dev.txt")
    text = read_text(folder / "test.txt", translator.model)
    found = perplexity(translator.decoder, text, systems(translator))
    knn = {score.name: score.perplexity for score in found.scores}
    rows = []
    for score in found.scores:
        searched = knn["learned"] if score.name.startswith("learned") else knn["kNN-LM"]
        against = "" if score.name == "base" else f"{score.perplexity / searched - 1:+.1%}"
        saved = f"{score.searches_saved:.0%}" if score.settings.pointers else ""
        rows.append((score.name, f"{score.perplexity:.2f}", against, saved))
    title = (
        f"GPT-2 of {LAYERS} layers, {WIDTH} wide, trained on {tokens:,} tokens of documentation strings; datastore: "
        f"{len(store):,} tokens of the English Bible; test: {text.tokens:,} tokens of other verses."
    )
    signature = found.signature.replace(str(folder / "model"), "small-gpt2")
    table = markdown(("", "perplexity", "against all tokens searched", "searches saved"), rows)
    write_figures(arguments.into, {"language-models": f"{title}\n\n{table}\n\n`{signature}`"})


def systems(translator: Translator) -> dict[str, SearchSettings]:
    """The model alone, both combiners, and each with pointers."""
    own = {name: translator.decoder.settings({"combiner": name}) for name in COMBINERS}
    every = {"base": replace(own["fixed"], weight=0.0), "kNN-LM": own["fixed"], "learned": own["learned"]}
    for minimum in POINTERS:
        plain = replace(own["fixed"], pointers=minimum, pointer_agreement=0.0)
        every[f"RetoMaton, {count(minimum, 'pointer')}"] = plain
        every[f"RetoMaton, {count(minimum, 'pointer')}, clusters"] = replace(plain, clusters=True)
    for label, name in (("RetoMaton", "fixed"), ("learned", "learned")):
        every[f"{label}, 4 pointers that agree"] = replace(own[name], pointers=4)
        every[f"{label}, 4 pointers that agree, clusters"] = replace(own[name], pointers=4, clusters=True)
    return every


def tune_on(translator: Translator, path: Path) -> None:
    """Let the translator use what fits a dev text best."""
    from knn_seq.decoding import store_settings

    assert isinstance(translator.store, Datastore)
    settings = [translator.decoder.settings({"combiner": name}) for name in COMBINERS]
    for one in tune_text(translator.decoder, read_text(path, translator.model), settings, 64):
        store_settings(translator.store, one.settings, as_default=False)


def documentation(size: int) -> str:
    """So much of it, in characters."""
    parts, length = [], 0
    for paragraph in docstrings():
        parts.append(paragraph)
        length += len(paragraph) + 1
        if length >= size:
            break
    return "\n".join(parts)


def docstrings() -> Iterator[str]:
    """Documentation of installed packages, paragraph by paragraph: those that are mostly words."""
    for package in PACKAGES:
        spec = find_spec(package)
        folders = list(spec.submodule_search_locations or ()) if spec else []
        for path in sorted(path for folder in folders for path in Path(folder).rglob("*.py")):
            try:
                tree = ast.parse(path.read_text())
            except (SyntaxError, ValueError, OSError):
                continue
            for node in ast.walk(tree):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                    for paragraph in (ast.get_docstring(node) or "").split("\n\n"):
                        words = paragraph.split()
                        if len(words) > 12 and sum(word.strip(".,:;").isalpha() for word in words) > 0.85 * len(words):
                            yield " ".join(words)


def train_model(path: Path, text: str, other: str, minutes: float) -> None:
    """A small GPT-2 that has learned from the text.

    Args:
        path: The folder to keep it in.
        text: What it learns from.
        other: What only its vocabulary knows of.
        minutes: Of CPU time.
    """
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE())
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    bpe.train_from_iterator([*text.splitlines(), *other.splitlines()], trainer)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token=END, eos_token=END)
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=len(tokenizer),
        n_embd=WIDTH,
        n_layer=LAYERS,
        n_head=4,
        n_positions=WINDOW,
        bos_token_id=0,
        eos_token_id=0,
    )
    network: Any = transformers.GPT2LMHeadModel(config)
    tokens = torch.tensor(tokenizer(text)["input_ids"])
    windows = tokens[: len(tokens) // WINDOW * WINDOW].view(-1, WINDOW)
    optimiser = torch.optim.AdamW(network.parameters(), lr=RATE)
    start, steps, loss = time.process_time(), 0, torch.zeros(())
    while time.process_time() - start < 60 * minutes:
        share = (time.process_time() - start) / (60 * minutes)
        for group in optimiser.param_groups:
            group["lr"] = RATE * min(1.0, steps / 50) * (1 - 0.9 * share)
        batch = windows[torch.randint(len(windows), (BATCH,))]
        loss = network(input_ids=batch, labels=batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        steps += 1
    print(f"trained {steps} steps, loss {loss.item():.3f}")
    network.save_pretrained(path)
    tokenizer.save_pretrained(path)
    (path / SEEN).write_text(str(steps * BATCH * WINDOW))


if __name__ == "__main__":
    main()
