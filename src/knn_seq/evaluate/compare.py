from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from knn_seq.evaluate.scores import bleu, chrf
from knn_seq.progress import Progress
from knn_seq.translate import Translator
from knn_seq.translation import Translation


@dataclass(frozen=True)
class System:
    """A way to translate, and how well and fast it does."""

    name: str
    settings: dict[str, Any]
    translations: list[Translation]
    bleu: float
    chrf: float
    tokens: int
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        """Output tokens a second."""
        return self.tokens / self.seconds

    def to_dict(self) -> dict[str, Any]:
        """The figures, without the translations."""
        return {
            "name": self.name,
            "bleu": round(self.bleu, 2),
            "chrf": round(self.chrf, 2),
            "tokens_per_second": round(self.tokens_per_second, 1),
            "tokens": self.tokens,
            "seconds": round(self.seconds, 2),
            "settings": self.settings,
        }


@dataclass(frozen=True)
class Comparison:
    """Systems on the same test set."""

    systems: list[System]
    sentences: int
    signatures: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "systems": [system.to_dict() for system in self.systems],
            "sentences": self.sentences,
            "signatures": self.signatures,
        }

    def table(self) -> str:
        """For people."""
        lines = [f"{'system':<10} {'BLEU':>6} {'chrF':>6} {'tokens/s':>9}"]
        for system in self.systems:
            lines.append(f"{system.name:<10} {system.bleu:>6.2f} {system.chrf:>6.2f} {system.tokens_per_second:>9,.0f}")
        lines += [f"{name}: {signature}" for name, signature in self.signatures.items()]
        return "\n".join(lines)


def compare(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    systems: dict[str, dict[str, Any]],
    quiet: bool = False,
) -> Comparison:
    """Translate the same sentences with each system and score them.

    Args:
        translator: The translator.
        sources: The sentences.
        references: Their reference translations.
        systems: The settings of each system, by name.
        quiet: Show no progress.
    """
    scored = []
    signatures: dict[str, str] = {}
    for name, settings in systems.items():
        # The first batch of a process is slow for reasons of its own; it must not count against one system.
        translator.translate(sources[: translator.decoding.batch_size], **settings)
        with Progress(f"translate ({name})", len(sources), "sentences", quiet=quiet) as progress:
            start = time.perf_counter()
            translations = translator.translate(sources, on_progress=progress.update, **settings)
            seconds = time.perf_counter() - start
        bleu_score, chrf_score = bleu(translations, references), chrf(translations, references)
        signatures = {"BLEU": bleu_score.signature, "chrF": chrf_score.signature}
        tokens = sum(len(translation.tokens) for translation in translations)
        scored.append(System(name, settings, translations, bleu_score.value, chrf_score.value, tokens, seconds))
    return Comparison(scored, len(sources), signatures)
