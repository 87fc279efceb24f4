"""kNN-LM and RetoMaton: a small GPT-2 that was trained on one kind of text reads another.

    python benchmarks/language_models.py --into docs/language-models.md

The model learns, for a few minutes, from the documentation strings of installed Python packages.  Passages of the
demo's English Bible are the datastore, others are the dev text, on which everything is tuned and RetoMaton's settings
are chosen, and others are the test text.
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
from knn_seq.language import Perplexity, Text, TextScore, perplexity, read_text, tune_text
from knn_seq.runtime.wording import count
from knn_seq.settings import SearchSettings

PACKAGES = ("torch", "transformers", "numpy", "sklearn", "scipy", "h5py", "hypothesis", "ray", "pymilvus")
VOCABULARY, WIDTH, LAYERS, WINDOW = 6000, 192, 4, 128
BATCH, RATE = 8, 1.5e-3
TRAIN_BYTES = 4 << 20
PASSAGE = 25  # verses
VERSES = {"store": PASSAGE, "dev": 4, "test": 8}  # of a passage, that are taken
QUICK_VERSES = 500
EVERY = 60  # passages: one of so many is for the dev text, one for the test text, every fifth for the datastore
DEV_PASSAGE, TEST_PASSAGE, STORED_PASSAGE = 7, 37, 5
POINTERS, AGREEMENTS = (1, 4, 16, 64), (0.0, 0.5)
CLUSTER_SIZE = 128
LEAST_SAVED, MOST_LOST = 0.5, 0.01  # of the searches, of the perplexity: RetoMaton's goal
COMBINERS = ("fixed", "learned")
END = "<|endoftext|>"
SEEN = "tokens.txt"  # how many the model has learned from


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--minutes", type=float, default=1.5, help="of training, of CPU time")
    arguments = parser.parse_args()
    options = options_of(arguments)
    folder = arguments.folder / "language-model"
    folder.mkdir(parents=True, exist_ok=True)
    parts = passages([pair.target for pair in load_demo_corpus().train])
    if options.quick:
        parts = {name: lines[: QUICK_VERSES * VERSES[name] // PASSAGE // 4] for name, lines in parts.items()}
    for name, lines in parts.items():
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    if not (folder / "model" / SEEN).exists():
        docs = documentation(1 << 18 if options.quick else TRAIN_BYTES)
        train_model(folder / "model", docs, "\n".join(parts["store"]), 0.1 if options.quick else arguments.minutes)
    tokens = int((folder / "model" / SEEN).read_text())
    store = Datastore.build(folder / "store", str(folder / "model"), text=folder / "store.txt")
    store_clusters(store, CLUSTER_SIZE)
    translator = Translator(store)
    dev, test = (read_text(folder / f"{name}.txt", translator.model) for name in ("dev", "test"))
    untuned = perplexity(translator.decoder, test, without_pointers(translator))
    tune_on(translator, dev)
    chosen = choose_pointers(perplexity(translator.decoder, dev, with_pointers(translator)))
    found = perplexity(translator.decoder, test, without_pointers(translator) | chosen)
    title = (
        f"GPT-2 of {LAYERS} layers, {WIDTH} wide, trained on {tokens:,} tokens of documentation strings; datastore: "
        f"{len(store):,} tokens of the English Bible; dev: {dev.tokens:,}, test: {test.tokens:,} tokens of other "
        "passages.  RetoMaton has, of the settings that lose at most 1 % on the dev text, those that save most there."
    )
    signature = found.signature.replace(str(folder / "model"), "small-gpt2")
    table = markdown(("", "perplexity", "", "searches saved", "goal", ""), [*of_build(untuned), *of_tuned(found)])
    write_figures(arguments.into, {"language-models": f"{title}\n\n{table}\n\n`{signature}`"})


def passages(verses: list[str]) -> dict[str, list[str]]:
    """Some for the datastore, some for the dev text, some for the test text, from all of it."""
    parts: dict[str, list[str]] = {"store": [], "dev": [], "test": []}
    for number, start in enumerate(range(0, len(verses), PASSAGE)):
        place = number % EVERY
        names = {DEV_PASSAGE: "dev", TEST_PASSAGE: "test"}
        name = names.get(place, "" if place % STORED_PASSAGE else "store")
        if name:
            parts[name] += verses[start : start + VERSES[name]]
    return parts


def without_pointers(translator: Translator) -> dict[str, SearchSettings]:
    """The model alone and both combiners."""
    own = {name: translator.decoder.settings({"combiner": name}) for name in COMBINERS}
    return {"base": replace(own["fixed"], weight=0.0), "kNN-LM": own["fixed"], "learned": own["learned"]}


def with_pointers(translator: Translator) -> dict[str, SearchSettings]:
    """kNN-LM, and RetoMaton in many ways."""
    every = {"kNN-LM": without_pointers(translator)["kNN-LM"]}
    for minimum in POINTERS:
        for agreement in AGREEMENTS:
            plain = replace(every["kNN-LM"], pointers=minimum, pointer_agreement=agreement)
            every[f"{count(minimum, 'pointer')}, agreement {agreement:g}"] = plain
            every[f"{count(minimum, 'pointer')}, agreement {agreement:g}, clusters"] = replace(plain, clusters=True)
    return every


def choose_pointers(found: Perplexity) -> dict[str, SearchSettings]:
    """With clusters and without, what saves most searches and loses little; if all lose much, what loses least."""
    searched, *others = found.scores
    chosen = {}
    for label, clusters in (("pointers", None), ("pointers and clusters", True)):
        tried = [score for score in others if score.settings.clusters == clusters]
        good = [score for score in tried if score.perplexity <= (1 + MOST_LOST) * searched.perplexity]
        best = max(good, key=saved) if good else min(tried, key=lambda score: score.perplexity)
        chosen[f"RetoMaton, {label}: {best.name.removesuffix(', clusters')}"] = best.settings
    return chosen


def saved(score: TextScore) -> float:
    return score.searches_saved


def of_build(found: Perplexity) -> list[tuple[str, ...]]:
    """Rows of what the build itself chose."""
    base, fixed, learned = found.scores
    alone = (base.name, f"{base.perplexity:.1f}", "", "", "", "")
    return [alone, below("kNN-LM as built", fixed, base), below("learned as built", learned, fixed)]


def of_tuned(found: Perplexity) -> list[tuple[str, ...]]:
    """Rows of what was tuned on the dev text."""
    base, fixed, learned, *pointers = found.scores
    rows = [below("kNN-LM, tuned", fixed, base), below("learned, tuned", learned, fixed)]
    goal = f"{LEAST_SAVED:.0%} saved, at most {MOST_LOST:+.0%}"
    for score in pointers:
        reached = saved(score) >= LEAST_SAVED and score.perplexity <= (1 + MOST_LOST) * fixed.perplexity
        figures = (f"{score.perplexity:.1f}", change(score, fixed), f"{saved(score):.0%}")
        rows.append((score.name, *figures, goal, verdict(reached)))
    return rows


def below(label: str, score: TextScore, other: TextScore) -> tuple[str, ...]:
    reached = verdict(score.perplexity <= other.perplexity)
    return label, f"{score.perplexity:.1f}", change(score, other), "", f"not above {other.name}", reached


def change(score: TextScore, other: TextScore) -> str:
    return f"{score.perplexity / other.perplexity - 1:+.1%} of {other.name}"


def verdict(reached: bool) -> str:
    return "reached" if reached else "**not reached**"


def tune_on(translator: Translator, text: Text) -> None:
    """Let the translator use what fits a text best."""
    from knn_seq.decoding import store_settings

    assert isinstance(translator.store, Datastore)
    settings = [translator.decoder.settings({"combiner": name}) for name in COMBINERS]
    for one in tune_text(translator.decoder, text, settings):
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
