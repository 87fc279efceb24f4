from __future__ import annotations

import shutil
import sys
import weakref
from pathlib import Path
from tempfile import mkdtemp

STANDARD_INPUT = "-"  # in the place of a path
NAME = "stdin"  # what the pairs say that they come from


class StandardInput:
    """What comes through standard input, kept in a temporary file for as long as this object lives.

    A corpus is read more than once: for its identity, for its languages, for its pairs.
    """

    def __init__(self) -> None:
        folder = mkdtemp(prefix="knn-seq-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.path = Path(folder) / NAME
        with open(self.path, "wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
