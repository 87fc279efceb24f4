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
    """What a linear layer computes.  What a wide one returns is overwritten by its next product.

    Args:
        module: The layer; its weights are shared, not copied.
        dtype: The precision, as `ModelSettings.dtype` has it.
    """
    weight, bias = module.weight, module.bias
    if len(weight) >= WIDE and weight.device.type == "cpu":
        return WideLinear(weight, bias)
    return lambda x: F.linear(x, weight, bias)


class WideLinear:
    """An output projection on a CPU, to float32.

    Its products have memory of their own: new memory for rows × vocabulary at every step would take longer than many a
    product.  Few rows are multiplied the other way round.

    Args:
        weight: (outputs, inputs)
        bias: (outputs,) or None.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight, self.bias = weight, bias
        self._memory = weight.new_empty(0, len(weight))
        self._float = self._memory.float()  # the same where the weights are float32

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        """(rows, inputs) to (rows, outputs)."""
        rows, single = len(x), self.weight.dtype == torch.float32
        if rows > len(self._memory):
            self._memory = self.weight.new_empty(rows, len(self.weight))
            self._float = self._memory if single else self._memory.float()
        product = self._memory[:rows]
        if single and 0 < rows <= FEW_ROWS:
            columns = x.t() if rows > 1 else x.repeat(2, 1).t()  # that is faster than to multiply by a vector
            product.copy_(torch.mm(self.weight, columns)[:, :rows].t())
            return product if self.bias is None else product.add_(self.bias)
        if self.bias is None:
            torch.mm(x, self.weight.t(), out=product)
        else:
            torch.addmm(self.bias, x, self.weight.t(), out=product)
        return product if single else self._float[:rows].copy_(product)
