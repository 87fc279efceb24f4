from __future__ import annotations

import json
import re

from knn_seq.documents.base import DOCUMENT_FORMATS, Segment
from knn_seq.documents.spliced import SplicedDocument
from knn_seq.errors import DamagedFile

NO_TEXT = ("@", "$")  # keys that begin so describe others

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+')
_SURROGATE = re.compile("[\ud800-\udfff]")  # half of a letter, which nobody can translate
_LETTER = re.compile(r"[^\W\d_]")


@DOCUMENT_FORMATS.register("json")
class JsonDocument(SplicedDocument):
    """The strings of a JSON file that are values, such as those of a program in one language."""

    suffixes = (".json", ".arb")

    def _find(self) -> list[Segment]:
        try:
            json.loads(self.text)
        except (ValueError, RecursionError) as error:
            reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise DamagedFile(f"{self.name} is not JSON: {reason}.") from error
        segments: list[Segment] = []
        path: list[str | int] = []
        is_key = False  # the next string is a key
        for match in _TOKEN.finditer(self.text):
            token = match[0]
            if token in "{[":
                path.append("" if token == "{" else 0)
                is_key = token == "{"
            elif token in "}]":
                path.pop()
                is_key = False
            elif token == ",":
                is_key = isinstance(path[-1], str)
                if isinstance(path[-1], int):
                    path[-1] += 1
            elif token.startswith('"') and is_key:
                path[-1], is_key = json.loads(token), False
            elif token.startswith('"'):
                value = json.loads(token)
                hidden = any(isinstance(part, str) and part.startswith(NO_TEXT) for part in path)
                if _LETTER.search(value) and not hidden and not _SURROGATE.search(value):
                    key = ".".join(map(str, path))
                    segments.append(Segment((value,), key, start=match.start() + 1, end=match.end() - 1))
        return segments

    def _escaped(self, text: str, segment: Segment) -> str:
        return json.dumps(text, ensure_ascii=self.text.isascii())[1:-1]
