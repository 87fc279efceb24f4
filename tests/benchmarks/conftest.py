"""The scripts in benchmarks/ are no package; its folder comes last, so that it hides nothing."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
