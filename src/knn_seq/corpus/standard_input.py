from __future__ import annotations

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

STANDARD_INPUT = "-"  # in the place of a path
NAME = "stdin"  # what the pairs say that they come from


class StandardInput:
    """What comes through standard input, kept in a temporary file for as long as this object lives.

    A corpus is read more than once: for its identity, for its languages, for its pairs.
    """

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="knn-seq-")
        self.path = Path(self._folder.name) / NAME
        with open(self.path, "wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
