"""Fine-tuning, what a user would do instead: BLEU against the processor's time, beside kNN-MT and below it.

    python benchmarks/finetune.py --domains bible office-help --into docs/results.md

Trains the same Firefox model, in float32, on the text that the datastore has: AdamW, warm-up, batches of like
lengths, early stopping on dev.  A domain is a process of its own with one thread, side by side with the others.
On the test set it is decoded at each checkpoint, which costs it nothing.  Then a datastore is built with the fine-tuned
model, and all translate text outside of the domain.  Every figure is kept as soon as it is there.
"""

from __future__ import annotations

from knn_seq.runtime.environment import limit_spinning

limit_spinning()  # before torch is imported

import argparse
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from domains import (
    Domain,
    ParallelText,
    build_cpu_seconds,
    domain_arguments,
    domain_of,
    firefox_model,
    kept_figures,
    others,
    run_script,
    timing_steps,
)
from figures import markdown, measuring_conditions, write_figures
from kept import Kept
from line_plot import curves_folder, image, write_lines
from torch import Tensor

from knn_seq import Datastore, Translator
from knn_seq.metrics.bleu import bleu
from knn_seq.models import Model, TokenPair
from knn_seq.models.base import PairTokenizer
from knn_seq.models.batching import pad
from knn_seq.models.firefox import FirefoxModel
from knn_seq.models.firefox_network import FirefoxNetwork, find_model_folder, load_firefox
from knn_seq.settings import ModelSettings

DOMAINS = ("bible", "office-help")
MINUTES, QUICK_MINUTES = 8.0, 0.1  # of the processor
# No label smoothing: the model learned from a larger one, is certain of itself, and loses on dev when that is undone.
LEARNING_RATE, WARM_UP, WEIGHT_DECAY, LARGEST_GRADIENT = 1e-4, 20, 0.01, 1.0
BATCH_TOKENS, ACCUMULATED = 512, 2  # an update sees batches of different lengths, 1,024 tokens
DEV_EVERY, PATIENCE = 25, 4  # updates; so many times without a lower loss on dev
FIRST_CHECKPOINT = 30.0  # seconds; each is twice as late as the last


def main() -> None:
    parser = domain_arguments(__doc__, DOMAINS)
    parser.add_argument("--minutes", type=float, help=f"of the processor, for each domain (default {MINUTES:g})")
    parser.add_argument("--only", help=argparse.SUPPRESS)  # the domain that this process is for
    run_script(run, parser.parse_args())


def run(arguments: argparse.Namespace) -> None:
    minutes = arguments.minutes or (QUICK_MINUTES if arguments.quick else MINUTES)
    if arguments.only:
        torch.set_num_threads(1)
        measure(domain_of(arguments.only, arguments, firefox_model()), arguments, minutes)
        return
    for name in arguments.domains:
        domain_of(name, arguments, firefox_model()).translator  # noqa: B018  # built with all threads, if it is not there
    command = [sys.executable, __file__, *sys.argv[1:], "--only"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    workers = {name: subprocess.Popen([*command, name], env=environment) for name in arguments.domains}
    failed = [name for name, worker in workers.items() if worker.wait()]
    if failed:
        raise SystemExit(f"Not measured: {', '.join(failed)}.")
    parts = []
    for name in arguments.domains:
        figures = kept_of(name, arguments).figures
        folder = curves_folder(arguments.into, arguments.results)
        parts.append(f"**{name}**: {table(figures)}\n\n{curve(name, figures, folder)}")
    write_figures(arguments.into, {"finetune": "\n\n".join(parts)}, figures["conditions"])


def kept_of(name: str, arguments: argparse.Namespace) -> Kept:
    """The figures of a domain."""
    return kept_figures(f"finetune-{name}", __file__, arguments)


def measure(domain: Domain, arguments: argparse.Namespace, minutes: float) -> None:
    """Everything of one domain that is not kept yet."""
    kept = kept_of(domain.name, arguments)
    kept.get(("conditions",), measuring_conditions)
    kept.require_same(("minutes",), minutes)
    sets = [domain.test, others(arguments.text_folder)[0]]
    if arguments.quick:
        sets = [one.first(8) for one in sets]
    float32 = firefox_model("float32")
    kept.get(("base",), lambda: scores(alone(float32), sets, weight=0.0))
    kept.get(("base_int8",), lambda: scores(domain.translator, sets, weight=0.0))
    kept.get(("knn",), lambda: scores(domain.translator, sets))
    kept.put(("knn_seconds",), build_cpu_seconds(domain.kept))
    weights = domain.folder / f"finetuned-{minutes:g}.pt"
    if not weights.exists() or "curve" not in kept.figures:
        tuning = FineTuning(domain, float32, sets[0])
        tuning.run(60 * minutes)
        torch.save(tuning.best, weights)
        kept.put(("curve",), tuning.curve)
        kept.put(("training",), {"seconds": tuning.seconds, "updates": tuning.updates, "epochs": tuning.epochs})
    network, _ = load_firefox(find_model_folder("pt-en"))
    network.load_state_dict(torch.load(weights), strict=False)
    model = as_model(network, float32)
    with timing_steps(kept):
        store = Datastore.build(domain.folder / f"finetuned-{minutes:g}", model, domain.folder / "train.tsv")
    translator = Translator(store, model, beam_size=1)
    kept.get(("tuned",), lambda: scores(translator, sets, weight=0.0))
    kept.get(("both",), lambda: scores(translator, sets))


def scores(translator: Translator, sets: Sequence[ParallelText], **options: Any) -> list[float]:
    """BLEU of each test set."""
    return [bleu(translator.translate(one.sources, **options), one.references).value for one in sets]


def as_model(network: FirefoxNetwork, like: Model) -> Model:
    """A network behind the adapter of another model, in float32."""
    settings = ModelSettings("firefox:pt-en", dtype="float32")
    return FirefoxModel(network, like.tokenizer, like.fingerprint.vocabulary, settings)


def alone(model: Model) -> Translator:
    """Translates with a model that no datastore was made with."""
    return Translator(model=model, translation_memory=[("a", "a")], temperature=1.0, beam_size=1)


class Batch(NamedTuple):
    """Sentence pairs of like lengths, padded."""

    source: Tensor
    mask: Tensor
    target: Tensor
    real: Tensor

    @property
    def tokens(self) -> int:
        """Of the target."""
        return int(self.real.sum())

    @classmethod
    def of(cls, pairs: Sequence[TokenPair], padding: int) -> Batch:
        """Of tokenized pairs."""
        device = torch.device("cpu")
        source, mask = pad([pair.source for pair in pairs], padding, device)
        target, real = pad([pair.target for pair in pairs], padding, device)
        return cls(source, mask, target, real != 0)

    def loss(self, network: FirefoxNetwork) -> Tensor:
        """The mean over the target's tokens."""
        # The decoder sees each token from the next place on, and its first input is not looked at.
        logits = network(self.source, self.mask, F.pad(self.target[:, :-1], (1, 0))).logits
        return F.cross_entropy(logits[self.real], self.target[self.real])


class FineTuning:
    """Trains a copy of the model; seconds are the processor's, without the decoding of the test set.

    Args:
        domain: Has the text.
        like: The model that decodes the test set; its tokenizer is used.
        test: What is decoded at each checkpoint.
    """

    def __init__(self, domain: Domain, like: Model, test: ParallelText) -> None:
        self.domain, self.like, self.test = domain, like, test
        self.network, _ = load_firefox(find_model_folder("pt-en"))
        self.network.requires_grad_(True)
        train = ParallelText.of("train", domain.train)
        self.train, self.dev = (tokenized(one, like.tokenizer) for one in (train, domain.dev))
        self.optimizer = torch.optim.AdamW(self.network.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY)
        self.curve: list[tuple[float, float]] = []  # seconds and BLEU
        self.best: dict[str, Tensor] = {}
        self.seconds, self.updates, self.epochs = 0.0, 0, 0.0
        self._losses: list[float] = []  # on dev

    def run(self, limit: float) -> None:
        """Train for so many seconds, or until dev gets no better."""
        padding, checkpoint, begun = self.network.config.eos_token_id, FIRST_CHECKPOINT, time.process_time()
        self._look_at_dev(padding)
        for batches in self._batches(padding):
            self._update(batches)
            if self.updates % DEV_EVERY == 0:
                self._look_at_dev(padding)
            self.seconds += time.process_time() - begun
            ended = self.seconds >= limit or len(self._losses) - 1 - self._best_look() >= PATIENCE
            if self.seconds >= checkpoint or ended:
                checkpoint *= 2
                self._checkpoint()
            if ended:
                break
            begun = time.process_time()
        self._look_at_dev(padding)

    def _update(self, batches: Sequence[Batch]) -> None:
        self.updates += 1
        self.optimizer.param_groups[0]["lr"] = LEARNING_RATE * min(1.0, self.updates / WARM_UP)
        self.optimizer.zero_grad()
        tokens = sum(batch.tokens for batch in batches)
        for batch in batches:
            (batch.loss(self.network) * (batch.tokens / tokens)).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), LARGEST_GRADIENT)
        self.optimizer.step()

    @torch.no_grad()
    def _look_at_dev(self, padding: int) -> None:
        batches = [Batch.of(pairs, padding) for pairs in bucketed(self.dev)]
        losses = [batch.loss(self.network).item() * batch.tokens for batch in batches]
        self._losses.append(sum(losses) / sum(batch.tokens for batch in batches))
        if self._best_look() == len(self._losses) - 1:
            self.best = {name: value.clone() for name, value in self.network.state_dict().items()}

    def _best_look(self) -> int:
        return min(range(len(self._losses)), key=self._losses.__getitem__)

    @torch.no_grad()
    def _checkpoint(self) -> None:
        [score] = scores(alone(as_model(deepcopy(self.network), self.like)), [self.test], weight=0.0)
        self.curve.append((self.seconds, score))
        print(
            f"{self.domain.name}: {self.seconds:.0f} s, {self.updates} updates, {self.epochs:.2f} epochs, "
            f"loss on dev {self._losses[-1]:.3f}, BLEU {score:.2f}",
            flush=True,
        )

    def _batches(self, padding: int) -> Iterator[list[Batch]]:
        """What one update after the other sees."""
        order, buckets = random.Random(0), list(bucketed(self.train))
        while True:
            order.shuffle(buckets)
            for start in range(0, len(buckets), ACCUMULATED):
                some = buckets[start : start + ACCUMULATED]
                self.epochs += len(some) / len(buckets)
                yield [Batch.of(pairs, padding) for pairs in some]


def tokenized(text: ParallelText, tokenizer: PairTokenizer) -> list[TokenPair]:
    """The tokens of sentences and their references, the shortest first."""
    sides = tokenizer.encode_sources(text.sources), tokenizer.encode_targets(text.references)
    return sorted(map(TokenPair, *sides), key=lambda pair: (len(pair.target), len(pair.source)))


def bucketed(pairs: Sequence[TokenPair]) -> Iterator[list[TokenPair]]:
    """Sorted pairs in batches that have so many tokens with their padding."""
    batch: list[TokenPair] = []
    for pair in pairs:
        if batch and (len(batch) + 1) * len(pair.target) > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(pair)
    if batch:
        yield batch


def table(figures: dict[str, Any]) -> str:
    """What each costs and brings, and what share of fine-tuning's gain kNN-MT reaches."""
    training, knn_seconds = figures["training"], figures["knn_seconds"]
    on_top = sum(figures["cpu_seconds"].values())
    rows = [
        ("base, int8", 0.0, figures["base_int8"]),
        ("kNN-MT, `learned`, int8", knn_seconds, figures["knn"]),
        ("base, float32", 0.0, figures["base"]),
        ("fine-tuned, float32", training["seconds"], figures["tuned"]),
        ("fine-tuned and kNN-MT, float32", training["seconds"] + on_top, figures["both"]),
    ]
    cells = [[name, f"{seconds:,.0f}", f"{inside:.1f}", f"{outside:.1f}"] for name, seconds, (inside, outside) in rows]
    gain, tuned_gain = figures["knn"][0] - figures["base_int8"][0], figures["tuned"][0] - figures["base"][0]
    share = f"{gain / tuned_gain:.0%}" if tuned_gain > 0 else "(none)"
    reached = [seconds for seconds, score in figures["curve"] if score - figures["base"][0] >= gain]
    as_good = f"reaches that gain after {reached[0]:,.0f}" if reached else "does not reach that gain within these"
    return (
        f"{training['updates']:,} updates, {training['epochs']:.1f} epochs. kNN-MT reaches {share} of fine-tuning's "
        f"gain with {knn_seconds / training['seconds']:.0%} of its CPU-seconds; fine-tuning {as_good} CPU-seconds.\n\n"
        + markdown(["", "CPU-seconds", "BLEU", "BLEU, general text"], cells)
    )


def curve(name: str, figures: dict[str, Any], folder: Path) -> str:
    """BLEU against CPU-seconds as a picture."""
    path = folder / f"finetune-{name}.svg"
    write_lines(
        path,
        ("CPU-seconds", "BLEU"),
        {"fine-tuning": figures["curve"]},
        {"kNN-MT, learned": (figures["knn_seconds"], figures["knn"][0])},
        ("the model alone", figures["base"][0]),
    )
    return image(path, f"BLEU against CPU-seconds of fine-tuning and of kNN-MT: {name}")


if __name__ == "__main__":
    main()
