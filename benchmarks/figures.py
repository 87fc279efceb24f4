"""All figures of README and docs: which script measures which, and where its tables go.

    python benchmarks/figures.py                  # all of them: a day
    python benchmarks/figures.py speed harm       # those named
    python benchmarks/figures.py quick            # the two of the README: a quarter of an hour
    python benchmarks/figures.py --list
    python benchmarks/figures.py --clear          # take out tables that were measured with other code

A table stands in a marked place of a page, from `<!-- figures: NAME -->` to `<!-- end -->`.  A line below it says at
which commit, with what code, when, on what machine and with which versions it was measured.  A figure may have several
places: "scale/constants", "scale/sizes".  Tests refuse a table that was measured with other code than there is.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from measured_code import ROOT, digest

PLACE = "<!-- figures: {name} -->\n{text}\n<!-- end -->"
ANY_PLACE = re.compile(r"<!-- figures: (.*?) -->\n(.*?)<!-- end -->", re.DOTALL)
MEASURED_WITH = re.compile(
    r"^Measured at commit (?P<commit>.+?)(?: \(code (?P<code>\w+)\))? on \d{4}-\d\d-\d\d: ", re.MULTILINE
)
LIBRARIES = {"torch": "torch", "transformers": "transformers", "faiss": "faiss-cpu"}
MEASURED = ("src", "benchmarks", "pyproject.toml", "constraints.txt", ":(exclude)*.md")  # what figures depend on
SPEED = ("key_computation", "decoding_speed", "resident_memory", "startup")  # of bench.py: others have own places
DOMAINS = ("bible", "it", "office-help", "manuals")


class Figure(NamedTuple):
    """Some tables of one page, and the command that measures them; the script is given the page behind `--into`."""

    page: str
    script: str
    arguments: Sequence[str] = ()
    also: Sequence[str] = ()  # measured, too: scripts that it starts, packages that only knn_seq imports

    @property
    def code(self) -> str:
        """A digest of what it measures."""
        return digest((self.script, *self.also))


FIGURES = {
    "readme-results": Figure("README.md", "demo_quality.py"),
    "readme-speed": Figure("README.md", "demo_speed.py"),
    "it-packages": Figure("docs/it-packages.md", "it_text.py"),
    "office-help-text": Figure("docs/results.md", "office_help_text.py"),
    "manuals-text": Figure("docs/results.md", "manuals_text.py"),
    **{f"results-{name}": Figure("docs/results.md", "results.py", ("--domains", name), ("prune",)) for name in DOMAINS},
    "finetune": Figure("docs/results.md", "finetune.py", ("--minutes", "24")),
    "curves": Figure("docs/results.md", "curves.py", also=("prune",)),
    "speed": Figure(
        "docs/speed.md", "bench.py", ("--again", "--rounds", "3", "--parts", *SPEED), [f"{part}.py" for part in SPEED]
    ),
    "engines": Figure("docs/speed.md", "engines.py"),
    "precision": Figure("docs/speed.md", "precision.py"),
    "adaptive-probe": Figure("docs/speed.md", "adaptive_probe.py"),
    "skip": Figure("docs/speed.md", "skip.py", ("--domains", "bible", "it")),
    "pointers": Figure("docs/speed.md", "pointers.py"),
    "language-models": Figure("docs/language-models.md", "language_models.py"),
    "tuning": Figure("docs/tuning.md", "tuning.py"),
    "indexes": Figure("docs/indexes.md", "indexes.py"),
    "sentence-searches": Figure("docs/subset.md", "sentence_searches.py"),
    "subset-engines": Figure("docs/subset.md", "subset_engines.py"),
    "harm": Figure("docs/combiners.md", "harm.py", ("--domains", *DOMAINS)),
    "combiner-step": Figure("docs/combiners.md", "combiner_step.py"),
    "training-time": Figure("docs/combiners.md", "training_time.py"),
    "pruning": Figure("docs/pruning.md", "pruning.py", ("--domains", "bible", "it")),
    "live": Figure("docs/memory.md", "live.py", also=("live",)),
    "serve": Figure("docs/serving.md", "serve.py", also=("serve",)),
    "glossary": Figure("docs/glossary.md", "glossary.py"),
    "placeholders": Figure("docs/files.md", "placeholders.py"),
    "shards": Figure("docs/shards.md", "shards.py", also=("index/shards",)),
    "milvus": Figure("docs/milvus.md", "milvus_quality.py", also=("index/milvus",)),
    "build-engines": Figure("docs/cluster.md", "build_engines.py"),
    "key-dtype": Figure("docs/building.md", "key_dtype.py"),
    "firefox-engine": Figure("docs/building.md", "firefox_engine.py"),
    "scale": Figure("docs/scale.md", "scale.py", ("--largest", "10m")),
}
SETS = {
    "quick": ("readme-results", "readme-speed"),
    "texts": ("it-packages", "office-help-text", "manuals-text"),
    "evidence": (*(f"results-{name}" for name in DOMAINS), "harm", "finetune", "curves", "pruning"),
    "all": tuple(FIGURES),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of a figure, or {', '.join(SETS)} (default: all)")
    parser.add_argument("--list", action="store_true", help="tell which there are, and measure nothing")
    parser.add_argument("--clear", action="store_true", help="take out tables that were measured with other code")
    arguments = parser.parse_args()
    if arguments.clear:
        clear_stale()
        return
    try:
        names = chosen(arguments.names)
    except KeyError as error:
        raise SystemExit(f"There is no figure {error}: choose from {', '.join([*FIGURES, *SETS])}.") from None
    failed = []
    for name in names:
        page, script, options, _ = FIGURES[name]
        command = [sys.executable, f"benchmarks/{script}", *options, "--into", page]
        print(f"{name}: {' '.join(command[1:])}", flush=True)
        if not arguments.list and subprocess.run(command, cwd=ROOT).returncode:
            failed.append(name)
    if failed:
        raise SystemExit(f"Not measured: {', '.join(failed)}.")


def chosen(names: Sequence[str]) -> list[str]:
    """The figures that are named by themselves or as a set, each once; a `KeyError` has a name that is neither."""
    found: dict[str, None] = {}
    for name in names or ("all",):
        found |= dict.fromkeys(SETS.get(name) or ([name] if FIGURES[name] else []))
    return list(found)


def write_figures(page: Path | None, tables: Mapping[str, str], conditions: Mapping[str, Any] | None = None) -> None:
    """Print tables and put each of them into its place, with a line that tells how it was measured.

    Args:
        page: A Markdown file; None: the tables are printed only.
        tables: The text of each place.
        conditions: What `measuring_conditions` gave when the figures were measured; None: that was just now.
    """
    measured = conditions or measuring_conditions()
    texts = {place: f"{table}\n\n{conditions_line(measured, figure_of(place))}" for place, table in tables.items()}
    print("\n\n".join(texts.values()), flush=True)
    if page is not None:
        document = page.read_text(encoding="utf-8")
        for name, text in texts.items():
            document = replace_place(document, name, text)
        page.write_text(document, encoding="utf-8")


def clear_stale() -> None:
    """Take tables out of their places that were measured with other code than there is."""
    for page, place, text in places():
        measured, name = MEASURED_WITH.search(text), figure_of(place)
        if measured and measured["code"] != FIGURES[name].code:
            path = ROOT / page
            document = replace_place(path.read_text(encoding="utf-8"), place, unmeasured(name))
            path.write_text(document, encoding="utf-8")
            print(f"{page}: {place}")


def places() -> list[tuple[str, str, str]]:
    """The marked places of all pages: page, name and text."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return [
        (str(page.relative_to(ROOT)), name, text.strip())
        for page in pages
        for name, text in ANY_PLACE.findall(page.read_text(encoding="utf-8"))
    ]


def unmeasured(name: str) -> str:
    """What stands in the places of a figure that was not measured."""
    return f"Run `make figures ONLY={name}` to fill this in."


def figure_of(place: str) -> str:
    """The name of the figure that a place belongs to."""
    return place.partition("/")[0]


def replace_place(document: str, name: str, text: str) -> str:
    """The document with another text in the marked place of that name; a `SystemExit` if there is none, or two."""
    pattern = re.compile(PLACE.format(name=re.escape(name), text=r"((?!<!-- figures:).)*?"), re.DOTALL)
    places = pattern.findall(document)
    if len(places) != 1:
        mark = PLACE.format(name=name, text="...").replace("\n", " ")
        raise SystemExit(f"The page has {len(places) or 'no'} places for '{name}': it needs one {mark}.")
    return pattern.sub(lambda _: PLACE.format(name=name, text=f"\n{text}\n"), document)


def measuring_conditions() -> dict[str, Any]:
    """What figures depend on: the code, the day, the machine, the versions."""
    return {
        "commit": commit(),
        "code": {name: figure.code for name, figure in FIGURES.items()},
        "date": date.today().isoformat(),
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "versions": {
            "Python": platform.python_version(),
            **{name: version(package) for name, package in LIBRARIES.items()},
        },
    }


def conditions_line(conditions: Mapping[str, Any], name: str) -> str:
    """The same as a sentence, for the figure of that name."""
    versions = ", ".join(f"{library} {number}" for library, number in conditions["versions"].items())
    return (
        f"Measured at commit {conditions['commit']} (code {conditions['code'][name]}) on {conditions['date']}: "
        f"{conditions['processor']}, {conditions['cores']} cores; {versions}."
    )


def commit() -> str:
    """The short name of the commit, with "+changes" if code has changed since; without git, the package's version."""
    try:
        head = _git("rev-parse", "--short", "HEAD")
        return f"{head}+changes" if _git("status", "--porcelain", "--", *MEASURED) else head
    except (OSError, subprocess.CalledProcessError):
        return f"of version {version('knn-seq')}"


def processor() -> str:
    """The model of the CPU."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown: the first column to the left, figures to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
