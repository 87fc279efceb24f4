"""The packages, and which of them may import which."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import knn_seq

PACKAGE = Path(knn_seq.__file__).parent
MOST_LINES = 400
TOP_LEVEL_FILES = {"__init__", "errors", "registry", "settings", "datastore", "translator"}
# A package imports only what stands above it.
ORDER = [
    "__init__",
    "errors",
    "registry",
    "settings",
    "runtime",
    "metrics",
    "corpus",
    "protect",
    "documents",
    "models",
    "storage",
    "glossary",
    "quantize",
    "index",
    "sentences",
    "subset",
    "retrieve",
    "combine",
    "decoding",
    "likelihood",
    "train",
    "plan",
    "build",
    "prune",
    "live",
    "datastore",
    "translator",
    "explain",
    "tune",
    "language",
    "evaluate",
    "files",
    "serve",
    "demo",
    "fairseq",
    "cli",
]


def modules():
    return sorted(path for path in PACKAGE.rglob("*.py"))


def package_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_packages(path: Path) -> set[str]:
    packages = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "knn_seq":
            parts = node.module.split(".")
            packages |= {parts[1]} if len(parts) > 1 else {"__init__"}
        elif isinstance(node, ast.Import):
            packages |= {name.name.split(".")[1] for name in node.names if name.name.startswith("knn_seq.")}
    return packages


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_package_imports_only_packages_above_it(path):
    package = package_of(path)
    if path == PACKAGE / "__init__.py":
        return  # it offers names from below, imported when they are asked for
    later = {other for other in imported_packages(path) if ORDER.index(other) > ORDER.index(package)}
    assert not later, f"{package} must not import {later}"


def test_every_package_has_its_place():
    assert {package_of(path) for path in modules()} == set(ORDER)


def test_few_files_are_at_the_top():
    assert {path.stem for path in PACKAGE.glob("*.py")} == TOP_LEVEL_FILES


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_module_is_long(path):
    assert len(path.read_text().splitlines()) <= MOST_LINES
