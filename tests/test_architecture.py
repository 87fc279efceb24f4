"""The rooms, and who may know whom."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import knn_seq

PACKAGE = Path(knn_seq.__file__).parent
# A room imports only what stands above it.
ROOMS = [
    "__init__",
    "errors",
    "registry",
    "progress",
    "settings",
    "threads",
    "sizes",
    "metrics",
    "neighbours",
    "corpus",
    "models",
    "storage",
    "quantize",
    "index",
    "sentences",
    "memory",
    "retrieve",
    "combine",
    "stopwatch",
    "outage",
    "steer",
    "likelihood",
    "build",
    "datastore",
    "translation",
    "translate",
    "explain",
    "evaluate",
    "tune",
    "demo",
    "fairseq",
    "cli",
]


def modules():
    return sorted(path for path in PACKAGE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "knn_seq":
            parts = node.module.split(".")
            rooms |= {parts[1]} if len(parts) > 1 else {"__init__"}
        elif isinstance(node, ast.Import):
            rooms |= {name.name.split(".")[1] for name in node.names if name.name.startswith("knn_seq.")}
    return rooms


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_room_knows_only_the_rooms_above_it(path):
    room = room_of(path)
    if path == PACKAGE / "__init__.py":
        return
    later = {other for other in imported_rooms(path) if ROOMS.index(other) > ROOMS.index(room)}
    assert not later, f"{room} must not import {later}"


def test_every_room_has_its_place():
    assert {room_of(path) for path in modules()} == set(ROOMS)
