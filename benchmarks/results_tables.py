"""What `results.py` measured of a domain, as tables."""

from __future__ import annotations

import statistics
from typing import Any

from figures import markdown
from rounds import ratios

from knn_seq.evaluate.comparison import shown_p_value
from knn_seq.runtime.sizes import format_bytes


def section(figures: dict[str, Any]) -> str:
    """What the page says of a domain."""
    store = figures["store"]
    sentences = store["sentences"]
    signatures = [
        f"- {label}: `{next(iter(scores.values()))['signature']}`" for label, scores in figures["scores"].items()
    ]
    parts = [
        f"{sentences['train']:,} sentence pairs in the datastore, {store['entries']:,} entries of dimension "
        f"{store['dimension']}; {sentences['dev']:,} pairs to tune with, {sentences['test']:,} to test with; "
        f"{store['near_duplicates']:,} near-duplicates of stored sentences left out of these.",
        *(markdown(head, rows) for head, *rows in (quality(figures), tuned(figures), parts_of(figures))),
        f"Our index: `{store['recipe']}`; subsets: `{store['subset']['sentence_search']}`, codes "
        f"`{store['subset']['codes']}`.",
        "\n".join(signatures),
    ]
    return "\n\n".join(parts)


def quality(figures: dict[str, Any]) -> list[list[str]]:
    """Scores with their significance, and speed."""
    labels, speeds = list(figures["scores"]), figures["speeds"]
    of_base = ratios(speeds)
    rows = [["system", *labels, "tokens/s", "of base"]]
    for place, (name, its) in enumerate(speeds.items()):
        scores = [score_cell(figures["scores"][label], name) for label in labels]
        rows.append([name, *scores, f"{statistics.median(its):,.0f}", str(of_base[name]) if place else ""])
    return rows


def score_cell(scores: dict[str, dict[str, Any]], name: str) -> str:
    """A score, its difference to the first, and how likely chance alone makes one like it."""
    base, own = next(iter(scores.values())), scores[name]
    digits = 2 if max(score["value"] for score in scores.values()) > 2 else 4
    text = f"{own['value']:.{digits}f}"
    if own["p_value"] is None:
        return text
    p_value = shown_p_value(own["p_value"])
    return f"{text} ({own['value'] - base['value']:+.{digits}f}, p {p_value if p_value[0] == '<' else '= ' + p_value})"


def tuned(figures: dict[str, Any]) -> list[list[str]]:
    """What tuning chose."""
    rows = [["`fixed`, tuned for", "k", "temperature", "weight"]]
    for index, chosen in figures["made"]["tuned"].items():
        name = "our index" if index == "default" else f"the {index}'s index"
        rows.append([name, *(f"{chosen[setting]:g}" for setting in ("k", "temperature", "weight"))])
    return rows


def parts_of(figures: dict[str, Any]) -> list[list[str]]:
    """What there is on disk, and how long it took to make."""
    store, made = figures["store"], figures["made"]
    rows = [["part", "seconds", "CPU-seconds", "size", "bytes an entry"]]
    for part, seconds in made["seconds"].items():
        size = store["bytes"].get(part)
        cells = ["", ""] if size is None else [format_bytes(size), f"{size / store['entries']:.1f}"]
        rows.append([part, f"{seconds:.1f}", f"{made['cpu_seconds'][part]:.1f}", *cells])
    return rows
