"""What `results.py` measured of a domain, as tables."""

from __future__ import annotations

import statistics
from typing import Any

from figures import markdown
from rounds import ratios

from knn_seq.evaluate.comparison import shown_p_value
from knn_seq.runtime.sizes import format_bytes

STEPS = {
    "store_text": "text and tokens",
    "store_keys": "keys",
    "store_index": "index",
    "examples_for": "search for training",
    "train": "combiner",
}


def section(figures: dict[str, Any]) -> str:
    """What the page says of a domain."""
    store, pairs, run = figures["store"], figures["sentence_pairs"], figures["run"]
    indexes = ", ".join(f"{name} `{recipe}`" for name, recipe in store["indexes"].items())
    signatures = [
        f"- {label}: `{next(iter(scores.values()))['signature']}`" for label, scores in figures["scores"].items()
    ]
    parts = [
        f"{pairs['train']:,} sentence pairs in the datastore, {store['entries']:,} entries of dimension "
        f"{store['dimension']}; {pairs['dev']:,} pairs to tune with, {pairs['test']:,} to test with; beam size "
        f"{run['beam_size']}, batches of 32 sentences.",
        *(markdown(head, rows) for head, *rows in (quality(figures), tuned(figures), parts_of(figures))),
        f"Indexes: {indexes}; subsets: `{store['subset']['sentence_search']}`, codes `{store['subset']['codes']}`.",
        "\n".join(signatures),
    ]
    return "\n\n".join(parts)


def quality(figures: dict[str, Any]) -> list[list[str]]:
    """Scores with their significance, and speed."""
    labels = list(figures["scores"])
    of_base = ratios(figures["tokens_per_second"])
    rows = [["system", *labels, "tokens/s", "of base", "model / search / combination", "changed tokens"]]
    for name, system in figures["systems"].items():
        speed = statistics.median(figures["tokens_per_second"][name])
        shares = " / ".join(f"{system['shares'][part]:.0%}" for part in ("model", "search", "combination"))
        scores = [score_cell(figures["scores"][label], name) for label in labels]
        rows.append(
            [
                name,
                *scores,
                f"{speed:,.0f}",
                "" if name == "base" else str(of_base[name]),
                shares,
                f"{system['changed']:.1%}",
            ]
        )
    return rows


def score_cell(scores: dict[str, dict[str, Any]], name: str) -> str:
    """A score, its difference to base, and how likely chance alone makes one like it."""
    base, own = scores["base"], scores[name]
    digits = 2 if max(score["value"] for score in scores.values()) > 2 else 4
    text = f"{own['value']:.{digits}f}"
    if own["p_value"] is None:
        return text
    p_value = shown_p_value(own["p_value"])
    return f"{text} ({own['value'] - base['value']:+.{digits}f}, p {p_value if p_value[0] == '<' else '= ' + p_value})"


def tuned(figures: dict[str, Any]) -> list[list[str]]:
    """What tuning chose, and how long it took."""
    rows = [["tuned", "k", "temperature", "weight", "combiner", "tuning, s"]]
    for name, chosen in figures["tuned"].items():
        numbers = [f"{chosen[setting]:g}" for setting in ("k", "temperature", "weight")]
        rows.append([name, *numbers, chosen["combiner"], seconds_cell(figures, f"tune {name}")])
    return rows


def parts_of(figures: dict[str, Any]) -> list[list[str]]:
    """What there is on disk, and how long it took to make."""
    store = figures["store"]
    rows = [["part", "seconds to make", "size", "bytes an entry"]]
    for part in (*STEPS.values(), "the paper's index", "subsets", "memory"):
        size = store["bytes"].get(part)
        cells = ["", ""] if size is None else [format_bytes(size), f"{size / store['entries']:.1f}"]
        rows.append([part, seconds_cell(figures, part), *cells])
    return rows


def seconds_cell(figures: dict[str, Any], name: str) -> str:
    seconds = figures["seconds"].get(name)
    return "" if seconds is None else f"{seconds:.1f}"
