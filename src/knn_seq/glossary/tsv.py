"""Glossaries as tab-separated columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from knn_seq.corpus.files import require_file
from knn_seq.corpus.lines import read_lines
from knn_seq.errors import DamagedFile, InvalidSetting
from knn_seq.glossary.term import Term

COLUMNS = ("source", "target", "case", "part_of_speech", "source_forms", "target_forms", "forbidden")
SEPARATOR = "|"  # between several forms
_CASE = {"": False, "no": False, "false": False, "0": False, "insensitive": False}
_CASE |= {"yes": True, "true": True, "1": True, "sensitive": True}


def read_tsv(path: Path) -> list[Term]:
    """The terms of a file: source and target, or the columns that its first line names."""
    require_file(path)
    names: list[str] = ["source", "target"]
    terms = []
    for number, line in enumerate(read_lines(path), 1):
        try:
            cells = [cell.strip() for cell in (line or b"").decode().split("\t")]
        except UnicodeDecodeError as error:
            raise DamagedFile(f"{path} is no glossary: line {number} is not UTF-8.") from error
        if line is None:
            raise DamagedFile(f"{path} is no glossary: line {number} is longer than a line of a glossary can be.")
        if number == 1 and {"source", "target"} <= set(header := [_name(cell) for cell in cells]):
            names = _known(header, path)
        elif any(cells):
            terms.append(_term(dict(zip(names, cells, strict=False)), f"{path}, line {number}"))
    return terms


def tsv_lines(terms: Iterable[Term]) -> Iterable[str]:
    """What `read_tsv` reads: a header, and a line for each term."""
    yield "\t".join(COLUMNS)
    for term in terms:
        case = "sensitive" if term.case_sensitive else ""
        forms = (SEPARATOR.join(some) for some in (term.source_forms, term.target_forms, term.forbidden))
        yield "\t".join([term.source, term.target, case, term.part_of_speech or "", *forms])


def _name(cell: str) -> str:
    return cell.lower().replace(" ", "_").replace("-", "_")


def _known(names: list[str], path: Path) -> list[str]:
    for name in names:
        if name not in COLUMNS:
            raise InvalidSetting(f"{path} has a column '{name}': a glossary's are {', '.join(COLUMNS)}.")
    return names


def _term(cells: Mapping[str, str], place: str) -> Term:
    case = cells.get("case", "").lower()
    if case not in _CASE:
        raise InvalidSetting(f"{place}: the case is '{case}', not 'sensitive', 'insensitive' or nothing.")
    if not cells.get("source"):
        raise InvalidSetting(f"{place}: there is no source.")
    if not cells.get("target") and not cells.get("forbidden"):
        raise InvalidSetting(f"{place}: '{cells['source']}' has no target; columns are separated by tabs.")
    return Term(
        cells["source"],
        cells.get("target", ""),
        _CASE[case],
        cells.get("part_of_speech") or None,
        *(_forms(cells.get(name, "")) for name in ("source_forms", "target_forms", "forbidden")),
    )


def _forms(cell: str) -> tuple[str, ...]:
    return tuple(form.strip() for form in cell.split(SEPARATOR) if form.strip())
