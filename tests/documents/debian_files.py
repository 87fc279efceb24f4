"""Real documents of Debian packages through every format, with a model that changes nothing.

    python tests/documents/debian_files.py                  # round trips of all documents of the packages below
    python tests/documents/debian_files.py --keep           # and cut the fixtures of this folder out of them

Downloads with apt (no root needed, some 15 MB).  The tests need neither: small pieces under permissive licences are in
`fixtures/`, each with its origin in `fixtures/README.md`.
"""

from __future__ import annotations

import argparse
import subprocess
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import polib

from knn_seq.documents import Filled
from knn_seq.documents.opening import require_known_format
from knn_seq.errors import InvalidSetting, KnnSeqError

PACKAGES = ("libxml2-doc", "xorg-docs", "kcharselect", "kcalc", "debian-faq", "adduser", "reportbug", "findutils")
FIXTURES = Path(__file__).parent / "fixtures"
UNFILLED = (".po", ".xlf", ".tmx")  # filled, they differ from what they were
KEPT = {"libxml2-doc": "usr/share/doc/libxml2/html/architecture.html"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="*", default=PACKAGES)
    parser.add_argument("--keep", action="store_true", help="write the fixtures")
    arguments = parser.parse_args()
    same, refused = Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["apt-get", "--quiet", "download", *arguments.packages], cwd=folder, check=True)
        for package in sorted(Path(folder).glob("*.deb")):
            for name, data in map(catalog_of, members(package)):
                if arguments.keep and name == KEPT.get(package.name.split("_")[0]):
                    (FIXTURES / Path(name).name).write_bytes(data)
                try:
                    kind = require_known_format(Path(name))
                    document = kind(data, name, {"target_lang": "en"} if "target_lang" in kind.options else {})
                except InvalidSetting:
                    continue
                except KnnSeqError as error:
                    refused[Path(name).suffix] += 1
                    print(f"refused: {error}")
                    continue
                filled = [Filled(s.content) if not name.endswith(UNFILLED) else None for s in document.segments]
                if document.filled(filled) != data:
                    raise SystemExit(f"{package.name}: {name} came out otherwise than it went in.")
                same[Path(name).suffix] += 1
    print(f"The same, byte for byte: {dict(same)}; refused: {dict(refused)}.")


def catalog_of(member: tuple[str, bytes]) -> tuple[str, bytes]:
    """A compiled catalog as its source, which is what people translate; any other file as it is."""
    name, data = member
    if not name.endswith(".mo"):
        return member
    with tempfile.NamedTemporaryFile(suffix=".mo") as file:
        file.write(data)
        file.flush()
        catalog = polib.mofile(file.name)
        return name.removesuffix(".mo") + ".po", str(catalog).encode(catalog.encoding)


def members(package: Path) -> Iterator[tuple[str, bytes]]:
    """The files in a package, read without unpacking it."""
    with (
        subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as unpacking,
        tarfile.open(fileobj=unpacking.stdout, mode="r|") as archive,
    ):
        for member in archive:
            file = archive.extractfile(member) if member.isfile() else None
            if file is not None:
                yield member.name.removeprefix("./"), file.read()


if __name__ == "__main__":
    main()
