"""Portuguese-English text of LibreOffice's help, out of two of Debian's packages (5 MB; MPL-2.0).

    python benchmarks/office_help_text.py

A paragraph has the same `id` in both languages, which says what belongs together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from debian_text import Phrase, download, files_of, is_documentation, provenance, text_arguments, write_text
from figures import write_figures
from html_blocks import blocks_of

PACKAGES = ("libreoffice-help-pt-br", "libreoffice-help-en-us")
PAGE = re.compile(r"/help/[-\w]+/(text/.+\.html)$")


def main() -> None:
    arguments = text_arguments(__doc__, "office-help").parse_args()
    packages = download(PACKAGES, arguments.cache)
    written = write_text(arguments.output, phrases(*map(paragraphs, packages)))
    write_figures(arguments.into, {"office-help-text": provenance(packages, written)})


def paragraphs(package: Path) -> dict[str, str]:
    """The text of each paragraph that has an id, by page#id."""
    pages = sorted((found[1], data.decode()) for found, data in files_of(package, PAGE))
    return {f"{name}#{block.id}": block.text for name, page in pages for block in blocks_of(page) if block.id}


def phrases(portuguese: dict[str, str], english: dict[str, str]) -> Iterator[tuple[Phrase, str]]:
    """What both languages have, with its id."""
    for name in filter(english.__contains__, portuguese):
        phrase = Phrase(portuguese[name], english[name])
        if is_documentation(phrase):
            yield phrase, name


if __name__ == "__main__":
    main()
