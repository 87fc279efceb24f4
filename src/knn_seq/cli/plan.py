"""knn-seq plan: what a datastore of some size will be and cost, before it is built."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from knn_seq.cli.colours import rows
from knn_seq.cli.options import add_model_options, chosen

if TYPE_CHECKING:
    from knn_seq.plan import Plan

HELP = "tell index, disk, memory, time and recall of a datastore before it is built"
EXAMPLE = "knn-seq plan --tokens 1e9 --dim 1024 --memory-limit 64GB"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--tokens", required=True, metavar="COUNT", help="target tokens, such as 1e9 or 20M")
    parser.add_argument("--dim", type=int, metavar="D", help="dimension of the keys (default: the model's)")
    parser.add_argument(
        "--memory-limit", metavar="SIZE", help="it may take, such as 64GB (default: half of what is free)"
    )
    parser.add_argument("--index-recipe", metavar="RECIPE", help='"auto" (default) or a faiss factory string')
    parser.add_argument(
        "--distance-metric", choices=("l2", "ip", "cosine"), default="l2", help="of the index (default l2)"
    )
    parser.add_argument("--key-dtype", choices=("float16", "float32"), default="float16", help="(default float16)")
    parser.add_argument("--model", metavar="NAME", help="measure how fast this model computes keys, too")
    parser.add_argument("--key-rate", metavar="COUNT", help="tokens a second that a worker computes, if you know it")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="machines like this one (default 1)")
    parser.add_argument("--key", help="ffn_in (default), ffn_out, or the path of a module")
    add_model_options(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> None:
    """Measure and print."""
    from knn_seq.errors import KnnSeqError
    from knn_seq.runtime.sizes import parse_bytes, parse_count

    entries = parse_count(arguments.tokens)
    memory = None if arguments.memory_limit is None else parse_bytes(arguments.memory_limit)
    dimension, key_rate = arguments.dim, None
    if dimension is None and arguments.model is None:
        raise KnnSeqError("The dimension of the keys is not known: give --dim, or --model.")
    if arguments.model is not None:
        from knn_seq.models import load_model
        from knn_seq.plan import measure_key_rate
        from knn_seq.settings import ModelSettings, override

        model = load_model(override(ModelSettings(arguments.model), chosen(arguments, ModelSettings)))
        if dimension is not None and dimension != model.dimension:
            raise KnnSeqError(f"The keys of {arguments.model} have dimension {model.dimension}, not {dimension}.")
        dimension = model.dimension
        key_rate = measure_key_rate(model) if arguments.key_rate is None else None
    if arguments.key_rate is not None:
        key_rate = float(parse_count(arguments.key_rate))

    from knn_seq.plan import make_plan

    recipe = None if arguments.index_recipe == "auto" else arguments.index_recipe
    plan = make_plan(
        entries,
        dimension,
        arguments.distance_metric,
        memory,
        arguments.key_dtype,
        recipe,
        key_rate=key_rate,
        workers=arguments.workers,
    )
    print(json.dumps(to_dict(plan), indent=2) if arguments.json else describe(plan))


def to_dict(plan: Plan) -> dict[str, object]:
    """The plan as JSON."""
    from dataclasses import asdict

    names = ("disk_bytes", "peak_disk_bytes", "index_seconds", "recall_is_extrapolated")
    return {**asdict(plan), **{name: getattr(plan, name) for name in names}}


def describe(plan: Plan) -> str:
    """The plan in a few lines."""
    from knn_seq.runtime.sizes import format_bytes
    from knn_seq.runtime.wording import count

    facts = {
        "datastore": f"{count(plan.entries, 'token')}, keys {plan.dimension} × {plan.key_dtype}, metric {plan.metric}",
        "index": plan.recipe,
        "index size": f"{format_bytes(plan.bytes_per_token)} a token, {format_bytes(plan.index_bytes)} in all",
        "disk": (
            f"{format_bytes(plan.disk_bytes)}: keys {format_bytes(plan.keys_bytes)}, "
            f"values {format_bytes(plan.values_bytes)}, index {format_bytes(plan.index_bytes)}; "
            f"texts come on top, about {format_bytes(plan.text_bytes[0])} to {format_bytes(plan.text_bytes[1])}; "
            f"at most {format_bytes(plan.peak_disk_bytes)} while it is built"
        ),
        "memory": (
            f"{format_bytes(plan.translating_memory)} to translate, and the model; "
            f"{format_bytes(plan.building_memory)} to build the index; {_budget(plan)}"
        ),
        "time here" if plan.workers == 1 else "time": _time(plan),
        "search": _search(plan),
        "recall@64": _recall(plan),
    }
    return rows(facts, 11, sys.stdout)


def _budget(plan: Plan) -> str:
    from knn_seq.runtime.sizes import format_bytes

    budget = format_bytes(plan.memory)
    if plan.lists_on_disk:
        return f"the lists stay on disk, the budget is {budget}"
    return f"within the budget of {budget}" if plan.fits else f"TOO MUCH for the budget of {budget}"


def _time(plan: Plan) -> str:
    steps = {
        "keys": plan.keys_seconds,
        "training": plan.training_seconds,
        "adding": plan.adding_seconds,
        "merging": plan.merging_seconds,
        "writing the index": plan.writing_seconds,
    }
    known = ", ".join(f"{name} {duration(value)}" for name, value in steps.items() if value is not None)
    shared = f"; {plan.workers} workers like this machine share keys and adding, and nothing else gets shorter"
    unknown = "; --model measures the keys, too" if plan.keys_seconds is None else ""
    # It learns from a bounded number of sentences.
    combiner = "; then a combiner is trained, a minute or two whatever the size"
    return known + (shared if plan.workers > 1 else "") + combiner + unknown


def _search(plan: Plan) -> str:
    from knn_seq.plan import MANY, ONE

    if plan.search_seconds is None or plan.batch_seconds is None:
        return "not measured"
    one, many = (
        f"{1000 * seconds:.{0 if seconds >= 0.01 else 2}f} ms" if seconds < 1 else duration(seconds)
        for seconds in (plan.search_seconds, plan.batch_seconds)
    )
    away = 1 - plan.keys_in_memory
    # What is read from the disk takes far longer than all the rest.
    why = f"; {100 * away:.0f} % of the keys do not fit into the budget and come from the disk" if away else ""
    return f"{one} for {ONE} query, {many} for {MANY} at once{why}"


def _recall(plan: Plan) -> str:
    if plan.recall is None:
        return "not known for this recipe: `knn-seq index STORE --check` measures it"
    if not plan.recall_is_extrapolated:
        return f"{plan.recall:.3f}"
    measured = (
        f"at most {plan.recall_measured_up_to:,} keys of dimension {plan.recall_measured_dimension} were measured"
    )
    return f"about {plan.recall:.2f}, an extrapolation ({measured}): `knn-seq index STORE --check` tells"


def duration(seconds: float) -> str:
    """A time to read: "3 h 20 min"."""
    rounded = round(seconds)
    if rounded < 100:
        return f"{seconds:.2g} s" if seconds < 9.5 else f"{rounded} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    hours, days = round(seconds / 3600), seconds / 86400
    return (
        f"{minutes // 60} h {minutes % 60} min" if hours < 10 else f"{hours} h" if hours < 100 else f"{days:.0f} days"
    )
