from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from knn_seq import __version__
from knn_seq.combine import has_own_temperature
from knn_seq.datastore import Datastore
from knn_seq.errors import KnnSeqError
from knn_seq.evaluate.comparison import PARTS, Comparison, System
from knn_seq.evaluate.plots import (
    gains_figure,
    length_figure,
    require_plot_libraries,
    score_digits,
    score_figure,
    signed,
    speed_figure,
    surface_figure,
    svg,
    time_figure,
)
from knn_seq.evaluate.report.examples import examples, most_helped, most_hurt
from knn_seq.metrics.chrf import sentence_chrf
from knn_seq.runtime.wording import count
from knn_seq.storage.atomic import disk_errors, partial_of, publish, read_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = 5  # sentences helped most, and as many hurt most
LIBRARIES = ("torch", "transformers", "faiss-cpu", "sacrebleu")
SIGNIFICANT = 0.05


def write_report(path: Path, comparison: Comparison, title: str) -> None:
    """Write a comparison as one HTML file that needs nothing else: no network, no other file.

    Args:
        path: The file; it is replaced in one step.
        comparison: The systems, the one that the others are compared with first.
        title: The page's title.
    """
    page = render(comparison, title)
    partial = partial_of(path)
    with disk_errors(path):
        partial.write_text(page, encoding="utf-8")
    publish(partial, path)


def render(comparison: Comparison, title: str) -> str:
    """The page."""
    require_plot_libraries()
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("knn_seq.evaluate", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"signed": signed, "percent": percent, "probability": probability, "p_value": p_value}
    metrics = list(comparison.signatures)
    best = best_system(comparison)
    figures = {f"{metric} of each system": score_figure(comparison, metric) for metric in metrics}
    if len(comparison.systems) > 1:
        figures[f"Speed against {metrics[0]}"] = speed_figure(comparison, metrics[0])
    figures["Where the time of a token goes"] = time_figure(comparison)
    return environment.get_template("page.html").render(
        title=title,
        facts=facts(comparison),
        result=main_result(comparison, best),
        base=comparison.systems[0],
        systems=comparison.systems,
        best=best,
        metrics=metrics,
        digits={metric: score_digits([each.scores[metric].value for each in comparison.systems]) for metric in metrics},
        significant=SIGNIFICANT,
        parts=PARTS,
        figures=_drawn(figures, "system"),
        tunings=tunings(comparison),
        sentences=None if best is None else sentence_view(comparison, best),
        settings={system.name: {**_store_name(system), **_settings(system)} for system in comparison.systems},
        signatures=comparison.signatures,
        versions=versions(),
        recipe=json.dumps(recipe(comparison), indent=2, ensure_ascii=False),
    )


def best_system(comparison: Comparison) -> System | None:
    """The system with neighbours that scores best after the first metric; None if there is none."""
    metric = next(iter(comparison.signatures))
    others = [each for each in comparison.systems[1:] if each.searches]
    return max(others, key=lambda system: system.scores[metric].value, default=None)


def facts(comparison: Comparison) -> dict[str, str]:
    """What was compared, in a line each."""
    translator = comparison.systems[0].translator
    model, decoding = translator.model, translator.decoding
    how = f"beam of {decoding.beam_size}" if decoding.beam_size > 1 else "greedy"
    return {
        "Model": f"{model.settings.name} ({model.architecture})",
        **_searched(comparison),
        "Test set": count(len(comparison.sources), "sentence"),
        "Decoding": f"{'sampling' if decoding.sample else how}, batches of {decoding.batch_size}",
        "Date": date.today().isoformat(),
    }


def _searched(comparison: Comparison) -> dict[str, str]:
    """The datastores and translation memories of all systems."""
    datastores: dict[str, str] = {}
    memories: dict[str, str] = {}
    for store in (system.translator.store for system in comparison.systems):
        if isinstance(store, Datastore):
            counts = store.manifest.counts
            pairs = count(counts.sentences, "sentence pair")
            entries = f"{count(len(store), 'entry', 'entries')} from {pairs}"
            datastores[str(store.path)] = f"{store.path.name}: {entries}"
        else:
            memories[store.name] = f"{store.name}: {count(len(store), 'sentence pair')}, searched as they are"
    found = {"Datastore": datastores, "Translation memory": memories}
    return {name: "; ".join(of_kind.values()) for name, of_kind in found.items() if of_kind}


def main_result(comparison: Comparison, best: System | None) -> str:
    """What came out, in one sentence."""
    base = comparison.systems[0]
    metric, score = next(iter(base.scores.items()))
    if best is None:
        return f"{base.name} reaches {score.value:.{score_digits([score.value])}f} {metric}."
    other = best.scores[metric]
    digits = score_digits([score.value, other.value])
    difference = other.value - score.value
    chance = other.p_value is not None and other.p_value >= SIGNIFICANT
    alone = "the model" if not base.searches else base.name
    which = f" ({best.name})" if len(comparison.systems) > 2 else ""
    effect = f"bring {signed(difference, digits)}" if difference >= 0 else f"cost {-difference:.{digits}f}"
    doubt = ", which may be chance," if chance else ""
    return (
        f"Neighbours{which} {effect} {metric}{f' ({p_value(other.p_value)})' if other.p_value is not None else ''}"
        f"{doubt} at {best.tokens_per_second / base.tokens_per_second:.2f} of {alone}’s speed; "
        f"{percent(best.changed)} of the tokens changed."
    )


def sentence_view(comparison: Comparison, best: System) -> dict[str, Any]:
    """The best system sentence by sentence: figures, and the sentences that gained and lost most."""
    base_chrf = sentence_chrf(comparison.systems[0].translations, comparison.references)
    chrf = sentence_chrf(best.translations, comparison.references)
    gains = [after - before for before, after in zip(base_chrf, chrf, strict=True)]
    helped, hurt = most_helped(gains, SHOWN), most_hurt(gains, SHOWN)
    shown = examples(comparison, best, [*helped, *hurt], base_chrf, chrf)
    figures = {"Sentences by how much they gain or lose": gains_figure(gains)}
    by_length = length_figure(comparison.sources, gains)
    if by_length is not None:
        figures["Gain by length of the sentence"] = by_length
    return {
        "helped": shown[: len(helped)],
        "hurt": shown[len(helped) :],
        "better": sum(gain > 0 for gain in gains),
        "worse": sum(gain < 0 for gain in gains),
        "same": sum(gain == 0 for gain in gains),
        "figures": _drawn(figures, "sentence"),
    }


def tunings(comparison: Comparison) -> list[dict[str, Any]]:
    """How the datastores' settings were found, with a figure for each retriever and combiner that was tuned."""
    stores = [system.translator.store for system in comparison.systems]
    folders = dict.fromkeys(store.path for store in stores if isinstance(store, Datastore))
    found: list[dict[str, Any]] = []
    for path in [folder / "tuning.json" for folder in folders]:
        if not path.exists():
            continue
        with suppress(KnnSeqError):  # what was compared is worth a page without it
            found += [
                {
                    "name": name,
                    "store": path.parent.name if len(folders) > 1 else None,
                    "figure": svg(surface_figure(tuning), f"surface{len(found) + i}"),
                    **tuning,
                }
                for i, (name, tuning) in enumerate(read_json(path).items())
            ]
    return found


def versions() -> dict[str, str]:
    """What computed all this."""
    found = {"knn-seq": __version__}
    for library in LIBRARIES:
        try:
            found[library] = version(library)
        except PackageNotFoundError:  # another build of it, under another name
            continue
    return found


def recipe(comparison: Comparison) -> dict[str, Any]:
    """What another person needs to do it again."""
    return {
        "model": comparison.systems[0].translator.model.settings.name,
        "sentences": len(comparison.sources),
        "systems": {system.name: {**system.searched, **_settings(system)} for system in comparison.systems},
        "signatures": comparison.signatures,
        "versions": versions(),
    }


def percent(share: float, digits: int = 0) -> str:
    """A share as people read it."""
    return f"{100 * share:.{digits}f}\N{NO-BREAK SPACE}%"


def probability(value: float) -> str:
    """A probability; what is not nothing never looks like nothing."""
    return "< 0.001" if 0 < value < 0.001 else f"{value:.3f}"


def p_value(value: float) -> str:
    """A p-value in words."""
    return ("p < 0.001" if value < 0.001 else f"p = {value:.3f}").replace(" ", "\N{NO-BREAK SPACE}")


def _drawn(figures: Mapping[str, Figure], name: str) -> dict[str, str]:
    """SVG by caption."""
    return {caption: svg(figure, f"{name}{i}") for i, (caption, figure) in enumerate(figures.items())}


def _store_name(system: System) -> dict[str, str]:
    """What a system searches, as short as it can be."""
    names = [Path(name).name for name in system.searched.values()]
    return {"searches": names[0]} if names else {}


def _settings(system: System) -> Mapping[str, Any]:
    """All settings of a system that have a value."""
    search, decoding = system.translator.settings(system.settings)
    together = asdict(decoding) if not search.weight else asdict(search) | asdict(decoding)
    if has_own_temperature(search.combiner):
        together.pop("temperature", None)
    return {"weight": search.weight} | {name: value for name, value in together.items() if value is not None}
