"""Bytes to text and back, without a byte lost."""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple

from knn_seq.errors import DamagedFile

MARKS = (  # the longer ones first: UTF-32 begins as UTF-16 does
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class Encoding(NamedTuple):
    """How the text of a file is written."""

    name: str
    mark: bytes = b""  # the byte-order mark before it

    def encode(self, text: str, errors: str = "strict") -> bytes:
        """The bytes of a text; characters that the encoding lacks are an error, or "xmlcharrefreplace"."""
        return self.mark + text.encode(self.name, errors)


def decode(data: bytes, name: str, declared: str | None = None) -> tuple[str, Encoding]:
    """The text of a file and its encoding, which encodes it to the same bytes.

    Args:
        data: The bytes.
        name: The file's name.
        declared: The encoding that the file itself names; None: UTF-8.
    """
    for mark, encoding in MARKS:
        if data.startswith(mark):
            return _decoded(data[len(mark) :], name, Encoding(encoding, mark))
    return _decoded(data, name, Encoding(declared or "utf-8"))


def declared_in_xml(data: bytes) -> str | None:
    """The encoding that an XML declaration names."""
    return _declared(rb"^\s*<\?xml[^>]*?encoding\s*=\s*[\"']([\w.:-]+)", data)


def declared_in_html(data: bytes) -> str | None:
    """The encoding that an HTML page names."""
    return declared_in_xml(data) or _declared(rb"<meta[^>]*?charset\s*=\s*[\"']?\s*([\w.:-]+)", data)


def _declared(pattern: bytes, data: bytes) -> str | None:
    match = re.search(pattern, data[:4096], re.IGNORECASE)
    return match[1].decode("ascii") if match else None


def _decoded(data: bytes, name: str, encoding: Encoding) -> tuple[str, Encoding]:
    try:
        text = data.decode(encoding.name)
        faithful = text.encode(encoding.name) == data
    except LookupError:
        raise DamagedFile(f"{name} says that it is written in {encoding.name}, which is no encoding.") from None
    except UnicodeError as error:
        raise DamagedFile(f"{name} is not text in {encoding.name}: {error}.") from error
    if not faithful:
        raise DamagedFile(f"{name} is not text in {encoding.name} as others write it: convert it to UTF-8.")
    return text, encoding
