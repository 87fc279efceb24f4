from __future__ import annotations

import re
from pathlib import Path

import pytest
from figures import (
    FIGURES,
    ROOT,
    SETS,
    chosen,
    conditions_line,
    markdown,
    measuring_conditions,
    replace_place,
    write_figures,
)

CONDITIONS = {
    "commit": "abc1234",
    "date": "2030-01-02",
    "processor": "slide rule",
    "cores": 2,
    "versions": {"torch": "2"},
}
PAGE = "before\n<!-- figures: a -->\nold\n<!-- end -->\nbetween\n<!-- figures: ab -->\nother\n<!-- end -->\nafter\n"


def places():
    """The marked places of all pages: page and name."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    return [
        (str(page.relative_to(ROOT)), name)
        for page in pages
        for name in re.findall(r"<!-- figures: (.*?) -->", page.read_text(encoding="utf-8"))
    ]


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
    line = "Measured at commit abc1234 on 2030-01-02: slide rule, 2 cores; torch 2."
    written = page.read_text()
    assert f"<!-- figures: a -->\n\n| one |\n\n{line}\n\n<!-- end -->" in written
    assert f"<!-- figures: ab -->\n\n| two |\n\n{line}\n\n<!-- end -->" in written
    assert "| two |" in capsys.readouterr().out


def test_conditions_name_commit_machine_and_versions():
    line = conditions_line(measuring_conditions())
    assert re.match(r"Measured at commit \S.* on \d{4}-\d\d-\d\d: .+, \d+ cores; Python 3\.", line)
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
    found = set(places())
    for name, figure in FIGURES.items():
        assert (ROOT / "benchmarks" / figure.script).exists()
        assert any(page == figure.page and place.split("/")[0] == name for page, place in found), name


def test_every_place_is_somebodys():
    for page, place in places():
        assert FIGURES[place.split("/")[0]].page == page


def test_every_page_is_in_the_repository():
    assert all(Path(ROOT / figure.page).exists() for figure in FIGURES.values())
