"""The product with a weight matrix, in the precision that a network runs in."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Linear = Callable[[Tensor], Tensor]
"""(rows, inputs) to (rows, outputs)."""

FEW_ROWS = 8  # up to so many, a wide product on a CPU is up to three times as fast transposed
WIDE = 1 << 14


def linear_for(module: nn.Linear, dtype: str) -> Linear:
    """What a linear layer computes.

    Args:
        module: The layer; its weights are shared, not copied.
        dtype: The precision, as `ModelSettings.dtype` has it.
    """
    weight, bias = module.weight, module.bias
    transposed = len(weight) >= WIDE and weight.device.type == "cpu"

    def linear(x: Tensor) -> Tensor:
        if transposed and 0 < len(x) <= FEW_ROWS:
            columns = x.t() if len(x) > 1 else x.expand(2, -1).t()  # that is faster than to multiply by a vector
            product = torch.mm(weight, columns)[:, : len(x)].t().contiguous()
            return product if bias is None else product.add_(bias)
        return F.linear(x, weight, bias)

    return linear
