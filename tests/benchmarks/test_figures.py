from __future__ import annotations

import ast
import re

import bench
import figures
import pytest
from figures import (
    FIGURES,
    MEASURED_WITH,
    SETS,
    SPEED,
    chosen,
    conditions_line,
    figure_of,
    markdown,
    measuring_conditions,
    places,
    replace_place,
    unmeasured,
    write_figures,
)
from measured_code import ROOT, canonical, measured_files

CONDITIONS = {
    "commit": "abc1234",
    "code": {"a": "0a0a0a0a", "ab": "0b0b0b0b"},
    "date": "2030-01-02",
    "processor": "slide rule",
    "cores": 2,
    "versions": {"torch": "2"},
}
PAGE = "before\n<!-- figures: a -->\nold\n<!-- end -->\nbetween\n<!-- figures: ab -->\nother\n<!-- end -->\nafter\n"


def test_only_the_named_place_is_replaced():
    page = replace_place(PAGE, "a", "new")
    assert page == PAGE.replace("\nold\n", "\n\nnew\n\n")
    assert replace_place(page, "a", "new") == page


def test_what_looks_like_a_group_of_an_expression_is_text():
    assert r"\1 \g<0>" in replace_place(PAGE, "a", r"\1 \g<0>")


@pytest.mark.parametrize(
    "page", ["", "<!-- figures: a -->\nno end", PAGE + PAGE, PAGE.replace("old\n<!-- end -->", "")]
)
def test_a_page_without_exactly_one_place_is_refused(page):
    with pytest.raises(SystemExit, match="places for 'a'"):
        replace_place(page, "a", "new")


def test_tables_are_written_with_the_conditions_of_their_measurement(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    write_figures(page, {"a": "| one |", "ab": "| two |"}, CONDITIONS)
    written = page.read_text()
    for place, table, code in (("a", "| one |", "0a0a0a0a"), ("ab", "| two |", "0b0b0b0b")):
        line = f"Measured at commit abc1234 (code {code}) on 2030-01-02: slide rule, 2 cores; torch 2."
        assert f"<!-- figures: {place} -->\n\n{table}\n\n{line}\n\n<!-- end -->" in written
    assert "| two |" in capsys.readouterr().out


def test_conditions_name_commit_machine_and_versions():
    line = conditions_line(measuring_conditions(), "speed")
    assert re.match(r"Measured at commit \S.* \(code [0-9a-f]{8}\) on \d{4}-\d\d-\d\d: .+, \d+ cores; Python 3\.", line)
    assert all(f"{name} " in line for name in ("torch", "transformers", "faiss"))


def test_tables_are_markdown():
    assert markdown(["a", "b"], [["c", "1"]]) == "| a | b |\n| --- | ---: |\n| c | 1 |"


def test_figures_are_chosen_by_name_and_by_set():
    assert chosen([]) == list(FIGURES)
    assert chosen(["scale", "quick", "readme-speed"]) == ["scale", "readme-results", "readme-speed"]
    with pytest.raises(KeyError, match="nothing"):
        chosen(["nothing"])
    assert {name for names in SETS.values() for name in names} <= set(FIGURES)


def test_every_figure_has_a_script_and_a_place_on_its_page():
    found = {(page, figure_of(place)) for page, place, _ in places()}
    for name, figure in FIGURES.items():
        assert (ROOT / "benchmarks" / figure.script).exists()
        assert (figure.page, name) in found


@pytest.mark.parametrize(("page", "place", "text"), [pytest.param(*each, id=each[1]) for each in places()])
def test_every_table_was_measured_with_the_code_that_is_here(page, place, text):
    figure = FIGURES[name := figure_of(place)]
    assert figure.page == page
    [*measured] = MEASURED_WITH.finditer(text)
    command = f"make figures ONLY={name}"
    if not measured:
        assert text == unmeasured(name)
        pytest.skip(f"{place} of {page} is not measured: {command}")
    assert len(measured) == 1
    assert "+changes" not in measured[0]["commit"], f"commit the code, then {command}"
    assert measured[0]["code"] == figure.code, f"what it measures has changed since: {command}, or clear it"


def test_the_code_of_a_figure_is_what_its_scripts_import_and_not_more():
    files = {str(path.relative_to(ROOT)) for path in measured_files(("harm.py",))}
    scripts = {
        "benchmarks/harm.py",
        "benchmarks/domains.py",
        "benchmarks/near_duplicates.py",
        "benchmarks/general.pt-en.tsv",
    }
    chosen_by_name = {f"src/knn_seq/{name}.py" for name in ("combine/learned", "index/torch", "retrieve/memory")}
    assert scripts | chosen_by_name | {"src/knn_seq/translator.py", "src/knn_seq/train/general.pt.txt"} <= files
    assert not files & {"benchmarks/figures.py", "benchmarks/measured_code.py", "src/knn_seq/index/milvus.py"}
    assert not any(path.startswith(f"src/knn_seq/{name}/") for path in files for name in ("cli", "documents", "serve"))
    assert measured_files(("harm.py", "live")) - measured_files(("harm.py",)) >= {
        ROOT / "src" / "knn_seq" / "live" / "add.py"
    }


def test_every_part_of_the_suite_has_a_figure():
    assert {part: part in FIGURES for part in bench.PARTS} == {part: part not in SPEED for part in bench.PARTS}
    assert FIGURES["speed"].also == [f"{part}.py" for part in SPEED]  # imported by name


def test_only_what_code_does_counts():
    code = 'import a\n\n\ndef f(x: int) -> str:\n    """Text."""\n    return f"{x:>{a.b}}"  # why\n'
    same = 'import a\ndef f( x:int )->str:\n    # because\n    return (\n        f"{x:>{a.b}}"\n    )\n'
    assert canonical(ast.parse(code)) == canonical(ast.parse(same))
    for other in ("x: str", 'f"{x:<{a.b}}"', "import b"):
        changed = code.replace({"x: str": "x: int", "import b": "import a"}.get(other, 'f"{x:>{a.b}}"'), other)
        assert canonical(ast.parse(changed)) != canonical(ast.parse(code))


def test_stale_tables_are_taken_out(tmp_path, monkeypatch):
    (tmp_path / "docs").mkdir()
    page = tmp_path / "README.md"
    current, stale = (
        conditions_line({**CONDITIONS, "code": {"quick": code}}, "quick")
        for code in (FIGURES["readme-speed"].code, "0" * 8)
    )
    page.write_text(PAGE.replace(": a ", ": readme-results ").replace(": ab ", ": readme-speed "))
    for place, line in (("readme-results", stale), ("readme-speed", current)):
        page.write_text(replace_place(page.read_text(), place, f"| 1 |\n\n{line}"))
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    figures.clear_stale()
    assert [text for _, _, text in places()] == [unmeasured("readme-results"), f"| 1 |\n\n{current}"]
