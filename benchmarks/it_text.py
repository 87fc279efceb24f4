"""Portuguese-English text of the IT domain, out of Debian's packages: what programs say, from their gettext catalogs.

    python benchmarks/it_text.py

Downloads the packages of it_packages.txt with apt (no root needed, some 0.5 GB).  An id is the package with its
version.  Licences are those of the packages.
"""

from __future__ import annotations

import gettext
import io
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from textwrap import fill

from debian_text import Phrase, download, files_of, is_text, label_of, text_arguments, write_text
from figures import write_figures

PACKAGES = tuple((Path(__file__).parent / "it_packages.txt").read_text().split())
END_OF_CONTEXT = "\x04"
CATALOG = re.compile(r"/pt_BR/LC_MESSAGES/[^/]+\.mo$")
# Markup, directives of printf and their like, variables, options of commands, addresses: no text that one translates.
NOISE = re.compile(r"[<>{}|\\\x00-\x1f]|%[^\s%]|\$[\w(]|--\w|://|^-")


def main() -> None:
    parser = text_arguments(__doc__, "it")
    parser.add_argument("--packages", nargs="+", default=PACKAGES, help="others than those that the script names")
    arguments = parser.parse_args()
    found: list[tuple[Phrase, str]] = []
    for package in download(arguments.packages, arguments.cache):
        label = label_of(package)
        phrases = [phrase for catalog in catalogs(package) for phrase in phrases_of(catalog)]
        print(f"{label}: {len(phrases):,} phrases", flush=True)
        found += [(phrase, label) for phrase in phrases]
    labels = write_text(arguments.output, found).labels
    if arguments.into:
        write_figures(arguments.into, {"it-packages": package_list(labels)})


def package_list(labels: Iterable[str]) -> str:
    """The packages that have a sentence in the text, each once."""
    return fill(" ".join(sorted(set(labels))), 120, break_on_hyphens=False, break_long_words=False)


def catalogs(package: Path) -> Iterator[gettext.GNUTranslations]:
    """The Portuguese catalogs in a package."""
    for path, data in files_of(package, CATALOG):
        try:
            yield gettext.GNUTranslations(io.BytesIO(data))
        except (OSError, UnicodeDecodeError):
            print(f"{package.name}: {path.string} cannot be read.")


def phrases_of(catalog: gettext.GNUTranslations) -> Iterator[Phrase]:
    """What is fit for a corpus in a catalog; of plural forms the singular, the only one whose English is kept."""
    entries = vars(catalog)["_catalog"]  # there is no public way to list them
    for message, translation in entries.items():
        text, form = message if isinstance(message, tuple) else (message, 0)
        english = text.rpartition(END_OF_CONTEXT)[2]
        if text and form == 0 and (phrase := cleaned(english, translation)) is not None:
            yield phrase


def cleaned(english: str, portuguese: str) -> Phrase | None:
    """One line on each side, without the marks of keyboard shortcuts; None if it is no text worth having."""
    english, portuguese = " ".join(english.split()), " ".join(portuguese.split())
    for mark in "_&":
        english, portuguese = _unmarked(english, portuguese, mark), _unmarked(portuguese, english, mark)
    phrase = Phrase(portuguese, english)
    return phrase if is_text(phrase) and not any(map(NOISE.search, phrase)) else None


def _unmarked(text: str, other: str, mark: str) -> str:
    """Without the mark of a shortcut, as in `_File`: a name such as `user_name` stands in the other language, too."""
    marked = [word for word in text.split() if re.search(rf"{mark}[^\W\d_]", word)]
    return text.replace(mark, "") if text.count(mark) == 1 and marked and marked[0] not in other.split() else text


if __name__ == "__main__":
    main()
