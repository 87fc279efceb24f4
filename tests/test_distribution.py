"""What is handed out: the source distribution and what an installation brings."""

from __future__ import annotations

import email
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ENVIRONMENTS = (".venv", "env", "my-python")


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """The files of a source distribution that is built beside environments, without the folder they are in."""
    clone = tmp_path_factory.mktemp("sdist") / "clone"
    for name in ("src", "tests", "docs", "benchmarks"):
        shutil.copytree(ROOT / name, clone / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, clone)
    for environment in ENVIRONMENTS:
        for name in (
            "src/other/__init__.py",
            "lib/other/tests/test_it.py",
            "lib/docs/LICENSE",
            "README.md",
            "Makefile",
        ):
            file = clone / environment / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("of another project\n")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "sdist"]
    subprocess.run(command, cwd=clone, check=True, capture_output=True)
    [archive] = (clone / "dist").iterdir()
    with tarfile.open(archive) as tar:
        return {
            member.name.partition("/")[2]: tar.extractfile(member).read()
            for member in tar.getmembers()
            if member.isfile()
        }


def test_the_source_distribution_has_all_that_contributors_need(sdist):
    for name in ("CONTRIBUTING.md", "README.md", "LICENSE", "CHANGELOG.md", "Makefile", "constraints.txt"):
        assert name in sdist
    assert "src/knn_seq/cli/main.py" in sdist
    assert "src/knn_seq/demo/bible.pt-en.tsv.gz" in sdist
    assert "tests/conftest.py" in sdist


def test_an_environment_inside_the_clone_stays_out(sdist):
    assert not [name for name in sdist if name.startswith(ENVIRONMENTS)]
    assert b"of another project\n" not in sdist.values()


def test_drawing_is_an_extra(sdist):
    metadata = email.message_from_bytes(sdist["PKG-INFO"])
    needed = {line.split(";")[0].split(">")[0] for line in metadata.get_all("Requires-Dist") if "extra ==" not in line}
    assert "torch" in needed
    assert not needed & {"matplotlib", "jinja2", "ray", "hatchling"}
    assert "plot" in metadata.get_all("Provides-Extra")
    assert metadata.get_all("Project-URL")
