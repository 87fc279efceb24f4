from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def first_places(numbers: NDArray[Any]) -> NDArray[np.int64]:
    """For each of a row's numbers, (rows, n), where the same number is first in that row, (rows, n)."""
    places: NDArray[np.int64] = (numbers[:, :, None] == numbers[:, None, :]).argmax(axis=2)
    return places
