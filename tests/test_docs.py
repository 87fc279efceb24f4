"""Links lead somewhere, and commands in the documentation have the options that are shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from knn_seq.cli.main import COMMANDS, _parser

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "benchmarks" / "README.md", *(ROOT / "docs").glob("*.md")]
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")
COMMAND = re.compile(r"knn-seq (?P<command>[a-z-]+)(?P<rest>(?:[^\n`]|\\\n)*)")

names = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def anchors(page: Path) -> set[str]:
    """What GitHub makes of the headings of a page."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@names
def test_links_lead_to_files_and_headings(page):
    for target, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), f"{target}#{anchor}"


def _options(parser):
    """The options of a command and of its own commands."""
    own = [action.choices.values() for action in parser._actions if isinstance(action.choices, dict)]
    return {*parser._option_string_actions, *(name for parts in own for each in parts for name in _options(each))}


@names
def test_commands_have_the_options_that_are_shown(page):
    [subcommands] = [action for action in _parser()._actions if isinstance(action.choices, dict)]
    for match in COMMAND.finditer(page.read_text(encoding="utf-8")):
        if match["command"] in COMMANDS:
            known = _options(subcommands.choices[match["command"]])
            for option in re.findall(r"(?<=\s)--[a-z][a-z-]*", re.split(r"#|\)\"", match["rest"])[0]):
                assert option in known, match[0]
