"""Portuguese-English text of manuals, out of Debian's packages (21 MB).

    python benchmarks/manuals_text.py

GNOME's help (CC-BY-SA-3.0), man pages (GPL-3+ and the pages' own licences) and the Debian Reference (GPL-2+).  A
section of a page is taken if it has the same sequence of tags, or of groff's macros, in both languages: then paragraph
i of the one is the translation of paragraph i of the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from debian_text import (
    Phrase,
    download,
    files_of,
    is_documentation,
    one_line,
    provenance,
    text_arguments,
    write_text,
)
from figures import write_figures
from html_blocks import Block, blocks_of

PACKAGES = (
    "gnome-user-docs",
    "manpages-pt-br",
    "manpages-pt-br-dev",
    "manpages",
    "manpages-dev",
    "debian-reference-pt-br",
    "debian-reference-en",
)
PAGES = re.compile(  # the language, or nothing for an English man page, and the page
    r"/help/(?P<gnome>C|pt_BR)/(?P<gnome_page>.+\.page)$"
    r"|/man/(?P<man>pt_BR/)?(?P<man_page>man\d/.+)\.gz$"
    r"|/debian-reference/(?P<reference_page>\w+)\.(?P<reference>en|pt-br)\.html$"
)
HEADINGS = frozenset({"title", "h1", "h2", "h3", "SH", "SS"})
# What begins a paragraph of a man page; the other macros change the font, or are no text.
PARAGRAPH = re.compile(r"\.(SH|SS|TP|TQ|IP|PP|LP|P|HP|RS|RE|EX|EE|nf|fi)\b")
FONT = re.compile(r"\.(SB|SM|[BIR]{1,2})\s+")
QUOTES = dict.fromkeys((r"\(dq", r"\(lq", r"\(rq"), '"')
ESCAPES = {r"\-": "-", r"\(aq": "'", r"\e": "\\", r"\ ": " ", r"\~": " ", **QUOTES}
ESCAPE = re.compile(r"\\f(?:\[\w*\]|\(\w\w|\w)|\\[-&e~ ]|\\\(\w\w|\\s[-+]?\d")


class Page(NamedTuple):
    """Where a text comes from."""

    portuguese: bool
    name: str


def main() -> None:
    arguments = text_arguments(__doc__, "manuals").parse_args()
    pages: dict[Page, list[Block]] = {}
    packages = download(PACKAGES, arguments.cache)
    for package in packages:
        pages |= paragraphs(package)
    written = write_text(arguments.output, phrases(pages))
    write_figures(arguments.into, {"manuals-text": provenance(packages, written)})


def paragraphs(package: Path) -> dict[Page, list[Block]]:
    """The paragraphs of each page of a package that is in one of the two languages."""
    found = {}
    for path, data in files_of(package, PAGES):
        text = data.decode(errors="replace")
        if name := path["man_page"]:
            found[Page(bool(path["man"]), name)] = man_blocks(text)
        else:
            name = path["gnome_page"] or path["reference_page"]
            found[Page((path["gnome"] or path["reference"]) in ("pt_BR", "pt-br"), name)] = blocks_of(text)
    return found


def man_blocks(page: str) -> list[Block]:
    """The paragraphs of a man page."""
    blocks: list[tuple[str, list[str]]] = []
    code = False
    for line in page.splitlines():
        if begun := PARAGRAPH.match(line):
            code = begun[1] in ("EX", "nf") or (code and begun[1] not in ("EE", "fi"))
            heading = begun[1] in HEADINGS
            blocks.append((begun[1], [unescaped(line[begun.end() :]).strip(' "')] if heading else []))
            if heading:
                blocks.append(("text", []))
        elif blocks and not code and (font := FONT.match(line)):
            words = re.findall(r'"([^"]*)"|(\S+)', line[font.end() :])
            glue = "" if len(font[1]) == 2 else " "  # of two fonts in turns, as in .BR mknod (1)
            blocks[-1][1].append(unescaped(glue.join(quoted or plain for quoted, plain in words)))
        elif blocks and not code and not line.startswith((".", "'")):
            blocks[-1][1].append(unescaped(line))
    return [Block(tag, "", one_line([f"{part} " for part in parts])) for tag, parts in blocks]


def unescaped(text: str) -> str:
    """Without groff's escapes."""
    return ESCAPE.sub(lambda found: ESCAPES.get(found[0], ""), text)


def phrases(pages: dict[Page, list[Block]]) -> Iterator[tuple[Phrase, str]]:
    """What stands in the same place in both languages."""
    for page in sorted(page for page in pages if page.portuguese):
        ours, theirs = (sections(pages.get(Page(side, page.name), [])) for side in (True, False))
        if len(ours) - len(theirs) not in (0, 1):  # a translated man page ends with who translated it
            continue
        for own, other in zip(ours, theirs, strict=False):
            if [block.tag for block in own] == [block.tag for block in other]:
                for one, two in zip(own, other, strict=True):
                    phrase = Phrase(one.text, two.text)
                    if is_documentation(phrase):
                        yield phrase, page.name


def sections(blocks: list[Block]) -> list[list[Block]]:
    """The paragraphs from one heading to the next."""
    parts: list[list[Block]] = [[]]
    for block in blocks:
        if block.tag in HEADINGS:
            parts.append([])
        parts[-1].append(block)
    return parts


if __name__ == "__main__":
    main()
