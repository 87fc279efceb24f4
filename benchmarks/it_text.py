"""Portuguese-English text of the IT domain, out of Debian's packages: what programs say, from their gettext catalogs.

    python benchmarks/it_text.py --output it.pt-en.tsv.gz

Downloads the packages of it_packages.txt with apt (no root needed, some 0.5 GB), and writes Portuguese, English and the
package with its version as a TSV file.  The same packages make the same file, byte for byte.
"""

from __future__ import annotations

import argparse
import gettext
import gzip
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from textwrap import fill
from typing import NamedTuple

from figures import write_figures

PACKAGES = tuple((Path(__file__).parent / "it_packages.txt").read_text().split())
END_OF_CONTEXT = "\x04"
CATALOG = re.compile(r"/pt_BR/LC_MESSAGES/[^/]+\.mo$")
# Markup, directives of printf and their like, variables, options of commands, addresses: no text that one translates.
NOISE = re.compile(r"[<>{}|\\\x00-\x1f]|%[^\s%]|\$[\w(]|--\w|://|^-")
LETTER = re.compile(r"[^\W\d_]")
LEAST_LETTERS = 0.6  # of what is not a space
ENGLISH_WORDS, PORTUGUESE_WORDS = (4, 80), (3, 80)  # single words of menus would make up half of the text


class Phrase(NamedTuple):
    """What a program says, in both languages."""

    portuguese: str
    english: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("results/it.pt-en.tsv.gz"))
    parser.add_argument("--packages", nargs="+", default=PACKAGES, help="others than those that the script names")
    parser.add_argument("--cache", type=Path, default=Path("results/debian"), help="where packages are downloaded to")
    parser.add_argument("--into", type=Path, help="a page with a place for the list of packages")
    arguments = parser.parse_args()

    found: list[tuple[Phrase, str]] = []
    for package in download(arguments.packages, arguments.cache):
        name, version = package.name.split("_")[:2]
        label = f"{name}={version.replace('%3a', ':')}"
        phrases = [phrase for catalog in catalogs(package) for phrase in phrases_of(catalog)]
        print(f"{label}: {len(phrases):,} phrases", flush=True)
        found += [(phrase, label) for phrase in phrases]
    rows = list(unique(found))
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    with open(arguments.output, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.writelines(f"{phrase.portuguese}\t{phrase.english}\t{label}\n".encode() for phrase, label in rows)
    words = sum(len(phrase.english.split()) for phrase, _ in rows)
    print(f"{arguments.output}: {len(rows):,} sentence pairs, {words:,} English words.")
    if arguments.into:
        write_figures(arguments.into, {"it-packages": package_list(label for _, label in rows)})


def package_list(labels: Iterable[str]) -> str:
    """The packages that have a sentence in the text, each once."""
    return fill(" ".join(sorted(set(labels))), 120, break_on_hyphens=False, break_long_words=False)


def download(names: Iterable[str], folder: Path) -> list[Path]:
    """The packages, downloaded into the folder unless they are there; those that this Debian lacks are left out."""
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise SystemExit(f"There is no {tool} here: run this on Debian, or in a container of it.")
    known = set(subprocess.run(["apt-cache", "pkgnames"], check=True, capture_output=True, text=True).stdout.split())
    wanted = [name for name in names if name in known]
    lacking = [name for name in names if name not in known]
    if not wanted:
        raise SystemExit("apt knows none of the packages: run `apt-get update` first.")
    if lacking:
        print(f"Left out, for apt does not know them here: {', '.join(lacking)}.")
    folder.mkdir(parents=True, exist_ok=True)
    if subprocess.run(["apt-get", "--quiet", "download", *wanted], cwd=folder, stdout=subprocess.DEVNULL).returncode:
        raise SystemExit("apt-get could not download all packages: see above, and run the same command again.")
    # Of two versions in the cache the later one is the one that apt has just asked for.
    return [max(folder.glob(f"{name}_*.deb"), key=lambda path: path.stat().st_mtime) for name in wanted]


def catalogs(package: Path) -> Iterator[gettext.GNUTranslations]:
    """The Portuguese catalogs in a package, read without unpacking it."""
    with (
        subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as unpacking,
        tarfile.open(fileobj=unpacking.stdout, mode="r|") as archive,
    ):
        for member in archive:
            file = archive.extractfile(member) if member.isfile() and CATALOG.search(member.name) else None
            if file is not None:
                try:
                    yield gettext.GNUTranslations(file)
                except (OSError, UnicodeDecodeError):
                    print(f"{package.name}: {member.name} cannot be read.")


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
    fit = (
        ENGLISH_WORDS[0] <= len(english.split()) <= ENGLISH_WORDS[1]
        and PORTUGUESE_WORDS[0] <= len(portuguese.split()) <= PORTUGUESE_WORDS[1]
        and english.casefold() != portuguese.casefold()
        and all(_is_text(side) for side in (english, portuguese))
    )
    return Phrase(portuguese, english) if fit else None


def unique(found: Iterable[tuple[Phrase, str]]) -> Iterator[tuple[Phrase, str]]:
    """Each Portuguese and each English sentence once, whatever their case."""
    sources: set[str] = set()
    targets: set[str] = set()
    for phrase, label in found:
        source, target = phrase.portuguese.casefold(), phrase.english.casefold()
        if source not in sources and target not in targets:
            sources.add(source)
            targets.add(target)
            yield phrase, label


def _unmarked(text: str, other: str, mark: str) -> str:
    """Without the mark of a shortcut, as in `_File`: a name such as `user_name` stands in the other language, too."""
    marked = [word for word in text.split() if re.search(rf"{mark}[^\W\d_]", word)]
    return text.replace(mark, "") if text.count(mark) == 1 and marked and marked[0] not in other.split() else text


def _is_text(side: str) -> bool:
    return not NOISE.search(side) and len(LETTER.findall(side)) >= LEAST_LETTERS * len(side.replace(" ", ""))


if __name__ == "__main__":
    main()
