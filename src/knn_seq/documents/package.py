"""Documents that are zip archives of XML parts."""

from __future__ import annotations

import io
import shutil
import zipfile
from abc import abstractmethod
from collections.abc import Sequence
from copy import copy
from dataclasses import replace

from knn_seq.documents.base import Document, Filled, Segment
from knn_seq.documents.spliced import SplicedDocument
from knn_seq.documents.text import SOURCE_LANG
from knn_seq.errors import DamagedFile

LARGEST_PART = 64 << 20  # bytes of XML
LARGEST_CONTENT = 1 << 30  # bytes of all that is packed
MOST_PARTS = 10_000


class PackageDocument(Document):
    """A zip archive.  Parts without text, and those whose text did not change, are copied."""

    options = {"source_lang": SOURCE_LANG}

    @abstractmethod
    def _is_text(self, part: str) -> bool:
        """Whether a part, by its name, holds text."""

    @abstractmethod
    def _open(self, data: bytes, part: str) -> SplicedDocument:
        """The document that a part is."""

    def _read(self, data: bytes) -> list[Segment]:
        self._data, self._parts = data, dict[str, SplicedDocument]()
        segments: list[Segment] = []
        with self._archive() as archive:
            members = archive.infolist()
            unpacked = sum(member.file_size for member in members)
            if unpacked > LARGEST_CONTENT or len(members) > MOST_PARTS:
                raise DamagedFile(
                    f"{self.name} would unpack to {unpacked >> 20:,} MB in {len(members):,} parts, "
                    f"more than the {LARGEST_CONTENT >> 20:,} MB and {MOST_PARTS:,} parts that a document may have."
                )
            for member in members:
                if self._is_text(member.filename):
                    part = self._open(self._unpacked(archive, member), f"{self.name} ({member.filename})")
                    self._parts[member.filename] = part
                    segments += [replace(each, key=f"{member.filename} {each.key}") for each in part.segments]
        if not self._parts:
            raise DamagedFile(f"{self.name} holds no text: it is no document of its kind.")
        return segments

    def filled(self, translations: Sequence[Filled | None]) -> bytes:
        """The archive with its parts in their order."""
        changed: dict[str, bytes] = {}
        place = 0
        with self._archive() as archive:
            for name, part in self._parts.items():
                count = len(part.segments)
                written = part.filled(translations[place : place + count])
                place += count
                if written != self._unpacked(archive, archive.getinfo(name)):
                    changed[name] = written
            if not changed:
                return self._data
            packed = io.BytesIO()
            with zipfile.ZipFile(packed, "w") as made:
                made.comment = archive.comment
                for member in archive.infolist():
                    written_as = copy(member)  # writing changes it
                    if member.filename in changed:
                        made.writestr(written_as, changed[member.filename], member.compress_type)
                    else:
                        with archive.open(member) as source, made.open(written_as, "w") as target:
                            shutil.copyfileobj(source, target)
        return packed.getvalue()

    def _archive(self) -> zipfile.ZipFile:
        try:
            return zipfile.ZipFile(io.BytesIO(self._data))
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise DamagedFile(f"{self.name} is damaged: it is no zip archive ({error}).") from error

    def _unpacked(self, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
        too_large = f"{self.name} is refused: its part {member.filename} unpacks to more than {LARGEST_PART >> 20} MB."
        if member.file_size > LARGEST_PART:
            raise DamagedFile(too_large)
        try:
            with archive.open(member) as file:
                data = file.read(LARGEST_PART + 1)
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, ValueError) as error:
            raise DamagedFile(f"{self.name} is damaged: {member.filename} cannot be unpacked ({error}).") from error
        except Exception as error:  # zlib and lzma have errors of their own
            raise DamagedFile(f"{self.name} is damaged: {member.filename} cannot be unpacked ({error}).") from error
        if len(data) > LARGEST_PART:
            raise DamagedFile(too_large)
        return data
