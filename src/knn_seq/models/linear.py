"""The product with a weight matrix, in the precision that a network runs in."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Linear = Callable[[Tensor], Tensor]
"""(rows, inputs) to (rows, outputs)."""

FEW_ROWS = 16  # below, a wide product on a CPU is up to twice as fast transposed
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
        if transposed and 1 < len(x) < FEW_ROWS:
            product = torch.mm(weight, x.t()) if bias is None else torch.addmm(bias[:, None], weight, x.t())
            return product.t().contiguous()
        return F.linear(x, weight, bias)

    return linear
