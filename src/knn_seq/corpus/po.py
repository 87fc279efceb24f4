from __future__ import annotations

import codecs
import gettext
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar

from knn_seq.corpus.base import CORPUS_FORMATS, CorpusReader
from knn_seq.corpus.files import GZIP_MAGIC, reading
from knn_seq.corpus.languages import language_rank, model_language
from knn_seq.corpus.pair import BadPair, SentencePair, make_pair
from knn_seq.errors import DamagedFile, InvalidSetting
from knn_seq.registry import Option

if TYPE_CHECKING:
    from polib import POEntry, POFile

FUZZY = "fuzzy"
SIDES = ("msgid", "msgstr")
HEADER_BYTES = 1 << 16  # in which the header names the encoding
MANY = 5  # a number of things that takes the plural in languages that have several


@CORPUS_FORMATS.register("po")
class PoReader(CorpusReader):
    """A message catalogue of gettext: a pair for each message, and another for its plural.

    The source is the msgid, unless the option says otherwise or the catalogue's language is that of the model's source.
    """

    suffixes = (".po", ".pot")
    options: ClassVar[Mapping[str, Option]] = {
        "source": Option(None, "the side to translate from: msgid or msgstr", str),
        "fuzzy": Option(False, "take messages that are marked as fuzzy, too", bool),
    }
    preferred: str | None = None

    def __init__(
        self,
        paths: Sequence[Path],
        columns: Sequence[int | str] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(paths, columns, options)
        if self.option_values["source"] not in (None, *SIDES):
            raise InvalidSetting(
                f"The corpus option source is {' or '.join(SIDES)}, not {self.option_values['source']}."
            )

    def pairs(self, start: int = 0) -> Iterator[SentencePair | BadPair]:
        """Every message and every plural but for the first `start`, in their order; not those that are obsolete."""
        return islice(self._pairs(), start, None)

    def prefer_languages(self, source: str | None, target: str | None) -> None:
        """Translate from the side of this language, where no side is given."""
        self.preferred = model_language(source)

    def inferred(self) -> dict[str, Any]:
        """The side to translate from."""
        return {"source": self.source}

    @property
    def source(self) -> str:
        """The side to translate from."""
        if self.option_values["source"] is not None:
            return str(self.option_values["source"])
        language = self._header.get("Language", "")
        is_msgstr = self.preferred and language and language_rank(self.preferred, language) is not None
        return "msgstr" if is_msgstr else "msgid"

    @cached_property
    def _header(self) -> dict[str, str]:
        """Of the catalogue, which is read again for its messages: of many files, one at a time is in memory."""
        return dict(self._read().metadata)

    def _read(self) -> POFile:
        import polib

        with _plain_file(self.paths[0]) as path:
            try:
                return polib.pofile(str(path), encoding=_encoding(path), wrapwidth=0)
            except (OSError, UnicodeError, LookupError, ValueError, IndexError) as error:
                place = re.search(r"\(line (\d+)\)(: .+)?", str(error))
                reason = f"syntax error at line {place[1]}{place[2] or ''}" if place else str(error)
                raise DamagedFile(f"{self.paths[0]} cannot be read as a PO file: {reason}.") from error

    def _pairs(self) -> Iterator[SentencePair | BadPair]:
        reverse, date = self.source == "msgstr", self._header.get("PO-Revision-Date")
        singular, plural = self._plural_forms()
        for entry in self._read():
            if entry.obsolete:
                continue
            id = f"{entry.msgctxt}|{entry.msgid}" if entry.msgctxt else entry.msgid
            if not entry.msgid_plural:
                yield self._pair(entry, id, (entry.msgid, entry.msgstr), reverse, date)
                continue
            forms = entry.msgstr_plural
            yield self._pair(entry, id, (entry.msgid, forms.get(singular, "")), reverse, date)
            if plural != singular:
                yield self._pair(entry, f"{id}[plural]", (entry.msgid_plural, forms.get(plural, "")), reverse, date)

    def _pair(
        self, entry: POEntry, id: str, texts: tuple[str, str], reverse: bool, date: str | None
    ) -> SentencePair | BadPair:
        place = f"line {entry.linenum or 1}"  # polib gives 0 to a message in the first line
        if entry.fuzzy and not self.option_values["fuzzy"]:
            return BadPair(place, FUZZY)
        source, target = texts[::-1] if reverse else texts
        return make_pair(source, target, place, id, date=date)

    def _plural_forms(self) -> tuple[int, int]:
        """The numbers of the msgstr of one and of many things; the same one in a language that has no plural."""
        rule = self._header.get("Plural-Forms", "")
        match = re.search(r"nplurals\s*=\s*(\d+)\s*;\s*plural\s*=\s*([^;]+)", rule)
        if match is None:
            return 0, 1
        try:
            form: Callable[[int], int] = gettext.c2py(match[2].strip())
            forms = form(1), form(MANY)
        except (ValueError, ArithmeticError, RecursionError):
            return 0, 1
        return forms if max(forms) < int(match[1]) else (0, 1)


@contextmanager
def _plain_file(path: Path) -> Iterator[Path]:
    """The file itself, or what a gzipped one holds as a file: polib splits text that it is given at more than \\n."""
    with open(path, "rb") as file:
        if file.read(len(GZIP_MAGIC)) != GZIP_MAGIC:
            yield path
            return
    with TemporaryDirectory(prefix="knn-seq-") as folder:
        plain = Path(folder) / "catalogue.po"
        with reading(path) as packed, open(plain, "wb") as unpacked:
            shutil.copyfileobj(packed, unpacked)
        yield plain


def _encoding(path: Path) -> str:
    """What the header says; UTF-8 if it says nothing."""
    with open(path, "rb") as file:
        beginning = file.read(HEADER_BYTES)
    if beginning.startswith(codecs.BOM_UTF8):
        return "utf-8-sig"
    match = re.search(rb"Content-Type:[^\n]*?charset=([\w.:-]+)", beginning)
    declared = match[1].decode("ascii", "replace") if match else "utf-8"
    return "utf-8" if declared == "CHARSET" else declared
