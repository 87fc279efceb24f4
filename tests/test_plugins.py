"""Parts of another distribution: one file, found through entry points, with options of their own, in every command."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PARTS = Path(__file__).parent / "plugins" / "example_parts.py"
ENTRY_POINTS = """
[knn_seq.combine]
certainty = example_parts:CertaintyCombiner
[knn_seq.corpus]
pairs_xml = example_parts:PairsXmlReader
[knn_seq.documents]
keyed_lines = example_parts:KeyedLinesDocument
[knn_seq.index]
cells = example_parts:CellsIndex
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Run a command where the other distribution is installed; returns exit code, output and error output."""
    site = tmp_path_factory.mktemp("site")
    shutil.copy(PARTS, site)
    info = site / "example_parts-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: example-parts\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    paths = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))

    def command(*arguments, stdin=""):
        words = [sys.executable, "-m", "knn_seq.cli.main", *map(str, arguments)]
        done = subprocess.run(
            words, input=stdin, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths}
        )
        return done.returncode, done.stdout, done.stderr

    return command


@pytest.fixture(scope="module")
def store(run, tmp_path_factory, save_model, number_corpus):
    folder = tmp_path_factory.mktemp("plugins")
    rows = [line.split("\t") for line in number_corpus.read_text().splitlines()]
    units = "".join(f'<pair id="{i}"><fr>{s}</fr><en>{t}</en></pair>\n' for i, (s, t) in enumerate(rows))
    (folder / "train.pairs.xml").write_text(f"<pairs>{units}<pair><fr>5</fr></pair></pairs>")
    code, _, err = run(
        "build",
        *(
            folder / "store",
            "--model",
            save_model(),
            "--corpus",
            folder / "train.pairs.xml",
            "--corpus-option",
            "source=fr",
        ),
        *("--index-recipe", "cells", "--index-option", "cells=3"),
    )
    assert code == 0, err
    assert "Left out: 1 sentence pair (1 empty side)" in err
    return folder / "store"


def test_the_manifest_records_what_was_chosen(store):
    manifest = json.loads((store / "datastore.json").read_text())
    assert manifest["corpus"]["identity"]["options"]["source"] == "fr"
    assert manifest["counts"]["sentences"] == 120
    index = manifest["indexes"]["default"]
    assert (index["type"], index["options"]["cells"]) == ("cells", 3)


def test_options_of_a_search_are_the_plugins_own(run, store):
    recalls = []
    for visited in (1, 3):
        code, out, err = run("index", store, "--check", "--index-option", f"visited={visited}", "-q")
        assert code == 0, err
        recalls.append(float(out.split()[1]))
    assert recalls[0] < recalls[1] == 1.0
    code, _, err = run("index", store, "--check", "--index-option", "cells=9", "-q")
    assert (code, "takes the option 'cells' only when it is built" in err) == (2, True)
    code, _, err = run("translate", store, "--index-option", "nprobe=9", "-q", stdin="5\n")
    assert (code, "has no option 'nprobe': it has cells, visited" in err) == (2, True)


def test_a_combiner_sees_queries_and_the_model(run, store):
    lines = "5 6 7\n8 9 10\n11 12 13 14\n"
    options = (store, "--combiner", "certainty", "--temperature", 5, "--weight", 0.9, "-q")
    code, strong, err = run("translate", *options, "--combiner-option", "exponent=0", stdin=lines)
    assert code == 0, err
    code, weak, err = run("translate", *options, "--combiner-option", "exponent=50", stdin=lines)
    assert code == 0, err
    assert strong != weak
    code, explained, err = run("translate", *options, "--explain", "json", stdin=lines)
    weights = {token["weight"] for line in explained.splitlines() for token in json.loads(line)["tokens"]}
    assert len(weights) > 3  # each token has its own
    code, _, err = run("translate", *options, "--combiner-option", "power=2", stdin=lines)
    assert (code, "has no option 'power': it has exponent" in err) == (2, True)


def test_a_document_format_of_another_package_is_found_by_its_suffix(run, store, tmp_path):
    (tmp_path / "a.keyed").write_text("# nothing\none:5 6 x\ntwo:%s y\n")
    files = (tmp_path / "a.keyed", "--output", tmp_path / "b.keyed")
    code, out, err = run("translate", store, *files, "--document-option", "sign=:", "--report", "json", "-q")
    assert code == 0, err
    report = json.loads(out)
    assert (report["format"], [segment["key"] for segment in report["details"]]) == ("keyed_lines", ["one", "two"])
    first, second, third = (tmp_path / "b.keyed").read_text().splitlines()
    assert (first, second[:4], third[:4], third.count("%s")) == ("# nothing", "one:", "two:", 1)
