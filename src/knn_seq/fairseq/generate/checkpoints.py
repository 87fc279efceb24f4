"""What is in a fairseq checkpoint besides tensors."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import numpy as np
import torch


def allow_checkpoints() -> None:
    """Let `torch.load`, which reads nothing but weights by default, read the plain data around them as well.

    That stays safe: none of these can be made to run anything.
    """
    makers: dict[str, Any] = {"scalar": np.float64(0).__reduce__()[0], "_reconstruct": np.zeros(1).__reduce__()[0]}
    numbers = [np.float16, np.float32, np.float64, np.int32, np.int64, np.bool_]
    torch.serialization.add_safe_globals(
        [
            Namespace,  # the options it was trained with
            np.ndarray,
            np.dtype,
            *(type(np.dtype(number)) for number in numbers),
            # NumPy 1 and 2 call them differently.
            *((make, f"numpy.{core}.multiarray.{name}") for name, make in makers.items() for core in ("core", "_core")),
        ]
    )
