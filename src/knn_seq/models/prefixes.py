from __future__ import annotations

import torch
from torch import Tensor


class PrefixRows:
    """Which row of the step before each row continues: a search cuts and copies its beams.

    Rows with the same sentence and prefix are alike, so any of them will do.
    """

    def __init__(self) -> None:
        self._rows: dict[bytes, int] = {}

    def parents(self, sentences: Tensor, prefixes: Tensor) -> list[int] | None:
        """The row of the step before that had each row's prefix but for its last token; None: this is the first step.

        Args:
            sentences: The sentence of each row, (rows,).
            prefixes: The tokens before each row, (rows, t).
        """
        history = torch.cat([sentences.to(prefixes.device).unsqueeze(1), prefixes], dim=1).cpu().numpy()
        found = [self._rows[row[:-1].tobytes()] for row in history] if self._rows else None
        self._rows = {row.tobytes(): number for number, row in enumerate(history)}
        return found
