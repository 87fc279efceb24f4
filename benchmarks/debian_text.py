"""Parallel text out of Debian's packages: what the scripts that make it have in common.

Each writes `NAME.pt-en.tsv.gz` with id, Portuguese and English; the same packages make the same file, byte for byte.
Packages are downloaded with apt (no root needed) and read without being unpacked.
"""

from __future__ import annotations

import argparse
import gzip
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

TEXT_FOLDER = Path("results/text")
ENGLISH_WORDS, PORTUGUESE_WORDS = (4, 80), (3, 80)  # single words of menus would make up half of the text
LETTER = re.compile(r"[^\W\d_]")
LEAST_LETTERS = 0.6  # of what is not a space
# What was never translated has none of these.
PORTUGUESE = re.compile(r"\b(os?|as?|uma?|d[eoa]|d[oa]s|em|n[oa]s?|para|por|que|com|ou|[eé]|se|não)\b", re.I)


class Phrase(NamedTuple):
    """The same in both languages."""

    portuguese: str
    english: str


def text_arguments(description: str | None, name: str) -> argparse.ArgumentParser:
    """What the command lines of all scripts have that make text."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=TEXT_FOLDER / f"{name}.pt-en.tsv.gz")
    parser.add_argument("--cache", type=Path, default=Path("results/debian"), help="where packages are downloaded to")
    parser.add_argument("--into", type=Path, help="a page with a place for what the text is made of")
    return parser


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


def label_of(package: Path) -> str:
    """The package with its version: "libvirt-l10n=9.0.0-4"."""
    name, version = package.name.split("_")[:2]
    return f"{name}={version.replace('%3a', ':')}"


def files_of(package: Path, pattern: re.Pattern[str]) -> Iterator[tuple[re.Match[str], bytes]]:
    """The files in a package whose paths have the pattern, gunzipped if they are gzipped."""
    with (
        subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as unpacking,
        tarfile.open(fileobj=unpacking.stdout, mode="r|") as archive,
    ):
        for member in archive:
            found = pattern.search(member.name)
            file = archive.extractfile(member) if found and member.isfile() else None
            if found and file is not None:
                data = file.read()
                yield found, gzip.decompress(data) if member.name.endswith(".gz") else data


def is_text(phrase: Phrase) -> bool:
    """Whether it is long enough, translated, and made of words."""
    portuguese, english = phrase
    return (
        ENGLISH_WORDS[0] <= len(english.split()) <= ENGLISH_WORDS[1]
        and PORTUGUESE_WORDS[0] <= len(portuguese.split()) <= PORTUGUESE_WORDS[1]
        and english.casefold() != portuguese.casefold()
        and all(len(LETTER.findall(side)) >= LEAST_LETTERS * len(side.replace(" ", "")) for side in phrase)
    )


def is_documentation(phrase: Phrase) -> bool:
    """Whether it is a text of a manual that somebody translated."""
    return is_text(phrase) and PORTUGUESE.search(phrase.portuguese) is not None


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


class Written(NamedTuple):
    """A text that was written."""

    labels: list[str]
    summary: str


def write_text(path: Path, found: Iterable[tuple[Phrase, str]]) -> Written:
    """Write each phrase once, behind its id."""
    rows = list(unique(found))
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.writelines(f"{label}\t{phrase.portuguese}\t{phrase.english}\n".encode() for phrase, label in rows)
    words = sum(len(phrase.english.split()) for phrase, _ in rows)
    summary = f"{len(rows):,} sentence pairs, {words:,} English words"
    print(f"{path}: {summary}.")
    return Written([label for _, label in rows], summary)


def provenance(packages: Iterable[Path], written: Written) -> str:
    """What a text is made of, for a page."""
    return f"{written.summary}, from {', '.join(f'`{label_of(package)}`' for package in packages)}."


def one_line(parts: Sequence[str]) -> str:
    """Pieces of text as one line."""
    return " ".join("".join(parts).split())
