"""What `scale.py` measured, put into the model of cost: its constants, how well it predicts, and what it says."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from figures import markdown

from knn_seq.cli.plan import duration
from knn_seq.index.recipe import default_recipe
from knn_seq.plan import Plan, make_plan
from knn_seq.plan.cost import Costs, Job, Observation, Search, fit
from knn_seq.plan.cost.fit import SEARCHING
from knn_seq.runtime.sizes import format_bytes

FITTED = (100_000, 3_000_000)  # sizes that constants are fitted on
TOKENS = (10**6, 10**7, 10**8, 10**9, 10**10)
DIMENSION = 256
BUILDING, BATCHES = ("training", "adding", "merging", "writing"), (1, 5, 160)
PICTURE = """![Seconds to build and to search an index, measured and by the model](scale.svg)

Circles are measured; the constants were fitted on the full ones."""
PLENTY = 1 << 50  # bytes of memory: nothing has to be made smaller

# Table 1 of the paper: seconds without and with OPQ, on 8 V100 and 16 cores.
PAPER_TOKENS, PAPER_DIMENSION, PAPER_CORES, PAPER_GPUS = 997_700_000, 1024, 16, 8
PAPER = {"keys": (1539.3, 1539.3), "training": (326.0, 843.7), "adding": (6104.0, 7394.5)}

CONSTANTS = {
    "cluster": "training: a multiplication while k-means compares the sample with the lists",
    "rotate": "training: a multiplication of a key with the rotation, in all rounds that learn it",
    "learn": "training: a number and a code word, while codes are learned",
    "multiply": "adding: a multiplication of a key with the transform, or with a list",
    "step": "adding: a number of a key, for every doubling of a graph that finds its list",
    "encode": "adding: a number and a code word",
    "call": "searching: a batch, however large",
    "load": "searching: a byte of codes or centroids from memory, once for a batch",
    "compare": "searching: a multiplication of a query with the transform, or with a list",
    "walk": "searching: a number of a query, for every doubling of the graph",
    "visit": "searching: a code word of a list that is probed",
    "scan": "searching: a byte of codes",
    "rank": "searching: a number of a candidate's stored key",
    "reach": "searching: a candidate, for every doubling of the keys",
    "fetch": "searching: a candidate whose key comes from the disk",
    "merge": "merging: a byte that is read, put together and interleaved",
    "write": "writing: a byte",
}


class Check(NamedTuple):
    """What was predicted, and what came."""

    run: str
    what: str
    predicted: float
    measured: float
    fitted: bool  # the constants were fitted on it, so it proves nothing

    @property
    def error(self) -> float:
        """Relative to what was measured."""
        return self.predicted / self.measured - 1


def evaluate(report: Mapping[str, Any]) -> dict[str, Any]:
    """The constants, and every figure that they predict beside what was measured."""
    runs, cores = report["runs"], report["conditions"]["cores"]
    chosen = [run for run in runs if run["keys"] in _fitted_sizes(runs) and _is_usual(run)] + _graphs(runs)[:-1]
    costs = fitted_costs(chosen, cores).known({"fetch": report["fetch"]})
    checks = [check for run in runs for check in _checks(run, costs, cores, run in chosen)]
    return {"costs": asdict(costs), "checks": [check._asdict() for check in checks]}


def fitted_costs(runs: Sequence[Mapping[str, Any]], cores: int) -> Costs:
    """Constants out of runs, step by step: what one step tells is known to the next."""
    jobs = [(run, _job(run)) for run in runs]
    costs = fit([Observation(job.adding(), run["adding"], cores) for run, job in jobs], ["multiply", "encode", "step"])
    trained = [Observation(job.training(), run["training"], cores) for run, job in jobs if job.sample]
    costs = fit(trained, ["cluster", "rotate", "learn"], costs)
    costs = fit([Observation({"write": run["written"]}, run["writing"]) for run in runs], ["write"], costs)
    merged = [Observation(job.merging(), run["merging"]) for run, job in jobs if run["parts"]]
    searched = [
        Observation(job.searching(_search(each), cores), each["seconds"])
        for run, job in jobs
        for each in run["searches"]
    ]
    costs = fit(merged, ["merge"], costs)
    return fit(searched, SEARCHING, costs)


def _fitted_sizes(runs: Sequence[Mapping[str, Any]]) -> list[int]:
    """Those in the range, but never the largest of all: one has to be left to check."""
    sizes = sorted(run["keys"] for run in runs if _is_usual(run))
    return [size for size in sizes[:-1] if FITTED[0] <= size <= FITTED[1]] or sizes[:-1]


def _is_usual(run: Mapping[str, Any]) -> bool:
    return bool(run["recipe"] == default_recipe(run["keys"], run["dimension"]) and run["dimension"] == DIMENSION)


def _graphs(runs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [run for run in runs if "HNSW" in run["recipe"]]


def _job(run: Mapping[str, Any]) -> Job:
    return Job.of(run["keys"], run["dimension"], run["recipe"])


def _search(search: Mapping[str, Any]) -> Search:
    return Search(search["queries"], nprobe=search["nprobe"], refine_factor=search["refine_factor"])


def _checks(run: Mapping[str, Any], costs: Costs, cores: int, fitted: bool) -> Iterator[Check]:
    job, name = _job(run), _name(run)
    predicted = {
        "training, s": (costs.training(job, cores), run["training"]),
        "adding, s": (costs.adding(job, cores), run["adding"]),
        "index, bytes": (job.index_bytes, run["bytes"]),
        "memory of building, bytes": (job.building_memory(PLENTY), run["building_memory"]),
    }
    if run["parts"]:
        predicted["merging, s"] = costs.merging(job), run["merging"]
    for what, (expected, measured) in predicted.items():
        yield Check(name, what, expected, measured, fitted)
    for each in run["searches"]:
        if each["why"] != "other":
            why = "" if each["why"] == "default" else f", nprobe {each['nprobe']}, factor {each['refine_factor']}"
            expected = costs.searching(job, _search(each), cores)
            yield Check(name, f"{_queries(each['queries'])}{why}, s", expected, each["seconds"], fitted)


def _name(run: Mapping[str, Any]) -> str:
    lists = re.search(r"IVF\w+", run["recipe"])
    return f"{_count(run['keys'])} keys × {run['dimension']}, {lists[0] if lists else run['recipe']}"


def _queries(count: int) -> str:
    return "1 query" if count == 1 else f"{count} queries"


def _count(number: float) -> str:
    for size, unit in ((10**9, "B"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number / size:.4g} {unit}"
    return f"{number:.4g}"


# --- tables ---


def tables(report: Mapping[str, Any]) -> dict[str, str]:
    """All tables as Markdown, by the names of their places."""
    made = {
        "picture": PICTURE,
        "key-rates": key_rates_table(report),
        "constants": constants_table(report),
        "predictions": predictions_table(report),
        "sizes": sizes_table(report),
        "latency": latency_table(report),
        "paper": paper_table(report),
        "hardware": hardware_table(report),
    }
    return {f"scale/{name}": text for name, text in made.items()}


def key_rates_table(report: Mapping[str, Any]) -> str:
    rows = [(name, _count(rate)) for name, rate in report["key_rates"].items()]
    return markdown(("model", "keys computed in a second"), rows)


def constants_table(report: Mapping[str, Any]) -> str:
    rows = [(f"`{name}`", CONSTANTS[name], _seconds(value)) for name, value in report["costs"].items()]
    return markdown(("constant", "what is done once", "takes"), rows)


def predictions_table(report: Mapping[str, Any]) -> str:
    """What the constants were not fitted on, and one line for what they were."""
    checks = [Check(**each) for each in report["checks"]]
    rows = [
        (check.run, check.what, f"{check.predicted:.3g}", f"{check.measured:.3g}", f"{100 * check.error:+.0f} %")
        for check in checks
        if not check.fitted
    ]
    text = markdown(("index", "", "predicted", "measured", "error"), rows)
    errors = {fitted: sorted(abs(each.error) for each in checks if each.fitted == fitted) for fitted in (True, False)}
    middle = {fitted: f"{100 * values[len(values) // 2]:.0f} %" for fitted, values in errors.items() if values}
    within = sum(error <= 0.25 for error in errors[False])
    return (
        f"{text}\n\nOf these {len(errors[False])} figures {within} are within 25 %; the median error is "
        f"{middle[False]}, and {middle[True]} where the constants were fitted."
    )


def sizes_table(report: Mapping[str, Any]) -> str:
    """Datastores of the Firefox model on this machine."""
    rows = []
    for tokens in TOKENS:
        plan = planned(report, tokens, DIMENSION, report["key_rates"]["firefox:pt-en"])
        rows.append(
            (
                _count(tokens),
                f"`{plan.recipe}`",
                *map(_time, (plan.keys_seconds, plan.training_seconds, plan.adding_seconds)),
                _time((plan.merging_seconds or 0) + (plan.writing_seconds or 0)),
                format_bytes(plan.disk_bytes + plan.text_bytes[1]),
                format_bytes(plan.peak_disk_bytes),
                format_bytes(plan.building_memory),
                format_bytes(plan.translating_memory),
            )
        )
    head = ("tokens", "index", "keys", "training", "adding", "merging, writing", "disk", "at its peak")
    return markdown((*head, "memory to build", "to search"), rows)


def latency_table(report: Mapping[str, Any]) -> str:
    """Of a search on this machine, with the keys in memory and on the disk."""
    costs, cores = Costs.from_dict(report["costs"]), report["conditions"]["cores"]
    rows = []
    for tokens in TOKENS:
        recipe = default_recipe(tokens, DIMENSION)
        job = Job.of(tokens, DIMENSION, recipe)
        times = [
            _seconds(costs.searching(job, Search(count, in_memory=share), cores))
            for share in (1.0, 0.0)
            for count in BATCHES
        ]
        rows.append((_count(tokens), _count(job.entries / max(job.lists, 1)), *times))
    head = [f"{_queries(count)}, keys {where}" for where in ("in memory", "on disk") for count in BATCHES]
    return markdown(("tokens", "keys a list", *head), rows)


def paper_table(report: Mapping[str, Any]) -> str:
    """The paper's billion: what it took them, and what it would take us."""
    gpus = PAPER_TOKENS / PAPER["keys"][0]
    here = planned(report, PAPER_TOKENS, PAPER_DIMENSION, report["key_rates"]["Transformer-big"])
    cores = planned(report, PAPER_TOKENS, PAPER_DIMENSION, gpus, PAPER_CORES)
    workers = planned(report, PAPER_TOKENS, PAPER_DIMENSION, gpus / PAPER_GPUS, PAPER_CORES, PAPER_GPUS)
    rows = []
    for step in ("keys", "training", "adding"):
        ours = [getattr(plan, f"{step}_seconds") for plan in (here, cores, workers)]
        rows.append((step, *(f"{seconds:,.0f}" for seconds in (*PAPER[step], *ours))))
    ours = [(plan.merging_seconds or 0) + (plan.writing_seconds or 0) for plan in (here, cores, workers)]
    rows.append(("merging, writing", "in adding", "in adding", *(f"{seconds:,.0f}" for seconds in ours)))
    sums = [sum(column) for column in zip(*PAPER.values(), strict=True)]
    totals = [(plan.keys_seconds or 0) + (plan.index_seconds or 0) for plan in (here, cores, workers)]
    rows.append(("**all**", *(f"**{seconds:,.0f}** ({_hours(seconds)})" for seconds in (*sums, *totals))))
    head = ("paper", "paper, OPQ", f"ours, {report['conditions']['cores']} cores, no GPU")
    more = (
        f"ours, {PAPER_CORES} cores, their {PAPER_GPUS} GPUs",
        f"ours, {PAPER_GPUS} workers of {PAPER_CORES} cores and a GPU",
    )
    return markdown(("seconds", *head, *more), rows)


def hardware_table(report: Mapping[str, Any]) -> str:
    """What the paper's billion needs."""
    plan = planned(report, PAPER_TOKENS, PAPER_DIMENSION, None)
    costs, cores = Costs.from_dict(report["costs"]), report["conditions"]["cores"]
    job = Job.of(PAPER_TOKENS, PAPER_DIMENSION, plan.recipe)
    adding = costs.adding(job, 1)
    cached, fetched = (costs.searching(job, Search(BATCHES[-1], in_memory=share), PAPER_CORES) for share in (1.0, 0.0))
    rows = [
        ("index", f"`{plan.recipe}`, {plan.bytes_per_token:.3g} bytes a token"),
        (
            "disk",
            f"{format_bytes(plan.disk_bytes + plan.text_bytes[1])}, {format_bytes(plan.peak_disk_bytes)} at its peak",
        ),
        ("memory to build the index", format_bytes(plan.building_memory)),
        ("memory to search it", format_bytes(plan.translating_memory)),
        ("memory that would hold the keys, too", format_bytes(plan.translating_memory + plan.keys_bytes)),
        ("cores that add as fast as the paper did", f"{adding / PAPER['adding'][0]:,.0f} like the {cores} here"),
        (f"{BATCHES[-1]} queries on {PAPER_CORES} cores, keys in memory", _seconds(cached)),
        (f"{BATCHES[-1]} queries on {PAPER_CORES} cores, keys on a disk like the one here", _seconds(fetched)),
    ]
    return markdown(("", f"{_count(PAPER_TOKENS)} tokens, keys of {PAPER_DIMENSION} dimensions"), rows)


def planned(
    report: Mapping[str, Any],
    tokens: int,
    dimension: int,
    key_rate: float | None,
    cores: int | None = None,
    workers: int = 1,
) -> Plan:
    """The plan of a datastore with the constants that were measured, on so many cores like those here."""
    return make_plan(
        tokens,
        dimension,
        memory=PLENTY,
        key_rate=key_rate,
        workers=workers,
        costs=Costs.from_dict(report["costs"]),
        cores=cores or report["conditions"]["cores"],
    )


def _time(seconds: float | None) -> str:
    return "" if seconds is None else duration(seconds)


def _hours(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:,.0f} h" if hours >= 100 else f"{hours:.3g} h"


def _seconds(seconds: float) -> str:
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-12:.3g} ps"


# --- picture ---


def draw(report: Mapping[str, Any], path: Path) -> None:
    """What was measured (full: the constants were fitted on it) and the model: building left, searching right."""
    import matplotlib as mpl
    import numpy as np
    from matplotlib.figure import Figure

    costs, cores = Costs.from_dict(report["costs"]), report["conditions"]["cores"]
    runs = [run for run in report["runs"] if _is_usual(run)]
    fitted = _fitted_sizes(report["runs"])
    sizes = np.unique(np.geomspace(min(run["keys"] for run in runs), 1e10, 60).round().astype(int))
    jobs = [Job.of(int(size), DIMENSION, default_recipe(int(size), DIMENSION)) for size in sizes]
    mpl.rcParams["svg.hashsalt"] = "scale"  # the same picture is the same file
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    lines = [
        (left, "training", [costs.training(job, cores) for job in jobs], [run["training"] for run in runs]),
        (left, "adding", [costs.adding(job, cores) for job in jobs], [run["adding"] for run in runs]),
    ]
    for count in BATCHES:
        expected = [costs.searching(job, Search(count), cores) for job in jobs]
        found = [
            each["seconds"]
            for run in runs
            for each in run["searches"]
            if (each["queries"], each["why"]) == (count, "default")
        ]
        lines.append((right, _queries(count), expected, found))
    for panel, name, expected, found in lines:
        (line,) = panel.loglog(sizes, expected, label=name, linewidth=1)
        for run, seconds in zip(runs, found, strict=True):
            face = line.get_color() if run["keys"] in fitted else "white"
            panel.plot(run["keys"], seconds, "o", color=line.get_color(), markerfacecolor=face)
    for panel, title in ((left, "building the index"), (right, "searching it, keys in memory")):
        panel.set(title=title, xlabel="keys", ylabel=f"seconds, {cores} cores")
        panel.legend(frameon=False)
        panel.grid(alpha=0.3)
    figure.savefig(path, metadata={"Date": None})
