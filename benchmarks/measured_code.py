"""A short digest of the code that a figure measures: as long as it is the same, the figure holds.

The code is the script, the scripts of this folder that it imports, and what all of these import of knn_seq, with data
files.  Comments, docstrings and layout do not count, nor does this file.  What is in `ASIDE` counts only where a script
imports it, or the figure names it.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BENCHMARKS, SOURCES = ROOT / "benchmarks", ROOT / "src"
PACKAGE = SOURCES / "knn_seq"
# What no translation passes through unless it is asked for.
ASIDE = {
    *("cli", "demo", "documents", "evaluate", "explain", "fairseq", "files", "glossary", "language", "live", "plan"),
    *("protect", "prune", "serve", "tune"),
    *("index/milvus", "index/shards"),
}
FORMATS = {"corpus"}  # of these parts only those that are imported count, not all that can be chosen by name
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
WITHOUT_MEANING = {"ctx", "kind", "type_comment", "type_ignores"}
LETTERS = 8  # of a digest


def digest(parts: Sequence[str]) -> str:
    """A few letters that change with the measured code, which `measured_files` finds from these parts."""
    total = hashlib.sha256()
    for line in sorted(map(_line, measured_files(parts))):
        total.update(line.encode())
    return total.hexdigest()[:LETTERS]


def measured_files(parts: Sequence[str]) -> set[Path]:
    """The files of scripts of this folder ("bench.py") and of parts of knn_seq ("live"), and all that they need."""
    found: set[Path] = set()
    waiting = [BENCHMARKS / part for part in parts if part.endswith(".py")]
    named = [part for part in parts if not part.endswith(".py")]
    waiting += [file for file in PACKAGE.rglob("*.py") if _part(file) in named]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            own = _part(path)
            aside = ASIDE - {own} if own else set()
            waiting += [file for file in _needed(path) if _part(file) not in aside]
    return found


@cache
def _needed(path: Path) -> frozenset[Path]:
    """The modules that a module imports anywhere, the parts of a registry that it makes, the data that it reads."""
    if path.suffix != ".py":
        return frozenset()
    needed = set(_data_beside(path.parent)) if path.parent != BENCHMARKS else set()
    for node in ast.walk(_parsed(path)):
        if isinstance(node, ast.Import):
            needed.update(_modules(alias.name for alias in node.names))
        elif isinstance(node, ast.ImportFrom):
            name = str(node.module)  # no import is relative
            needed.update(_modules((name, *(f"{name}.{alias.name}" for alias in node.names))))
        elif isinstance(node, ast.Constant):
            needed.update(file for file in _data_beside(path.parent) if file.name == node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Registry":
            needed.update(_parts(ast.literal_eval(node.args[1])))
    return frozenset(needed - {BENCHMARKS / "figures.py", Path(__file__).resolve()})


def _parts(package: str) -> Iterator[Path]:
    if package not in FORMATS:
        yield from PACKAGE.joinpath(*package.split(".")).glob("*.py")


@cache
def _data_beside(folder: Path) -> frozenset[Path]:
    return frozenset(file for file in folder.iterdir() if file.is_file() and file.suffix not in (".py", ".md"))


def _modules(names: Iterable[str]) -> Iterator[Path]:
    """The files of those modules that are ours."""
    for name in names:
        path = (SOURCES if name.partition(".")[0] == "knn_seq" else BENCHMARKS).joinpath(*name.split("."))
        yield from (file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file())


@cache
def _part(path: Path) -> str:
    """The package of knn_seq, or what `ASIDE` names of one; "" for what is not a part of that."""
    if PACKAGE not in path.parents:
        return ""
    inside = path.relative_to(PACKAGE)
    named = (part for part in ASIDE if "/" in part and inside.as_posix().startswith(part))
    return next(named, inside.parts[0])


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_bytes())


@cache
def _line(path: Path) -> str:
    data = canonical(_parsed(path)).encode() if path.suffix == ".py" else path.read_bytes()
    return f"{path.relative_to(ROOT).as_posix()} {hashlib.sha256(data).hexdigest()}\n"


def canonical(code: ast.Module) -> str:
    """Code without comments, docstrings and layout, written alike by every version of Python."""
    parts: list[str] = []
    _write(code, parts)
    return "".join(parts)


def _write(node: object, parts: list[str]) -> None:
    if isinstance(node, ast.AST):
        parts.append(f"({type(node).__name__}")
        for name in node._fields:
            value = getattr(node, name, None)
            if value is None or value == [] or name in WITHOUT_MEANING:
                continue
            if name == "body" and isinstance(node, DOCUMENTED) and _is_text(value[0]):
                value = value[1:]
            elif isinstance(node, ast.JoinedStr):  # some versions put empty strings between its parts
                value = [part for part in value if getattr(part, "value", None) != ""]
            parts.append(f" {name}=")
            _write(value, parts)
        parts.append(")")
    elif isinstance(node, list):
        for each in node:
            _write(each, parts)
            parts.append(",")
    else:
        parts.append(ascii(node))  # what repr shows depends on the version of Unicode


def _is_text(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)
