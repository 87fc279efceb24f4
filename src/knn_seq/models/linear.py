"""The product with a weight matrix, in the precision that a network runs in."""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from knn_seq.models.int8 import Int8Linear, Int8Weight

Linear = Callable[[Tensor], Tensor]
"""(rows, inputs) to (rows, outputs)."""

FEW_ROWS = 8  # up to so many, a wide product on a CPU is up to three times as fast transposed
WIDE = 1 << 14


def linear_for(module: nn.Linear | Int8Linear, dtype: str, vocabulary: Tensor | None = None) -> Linear:
    """What a linear layer computes.  What a wide one returns is overwritten by its next product.

    Args:
        module: The layer; its weights are shared, not copied.
        dtype: The precision, as `ModelSettings.dtype` has it: "int8", or any other for that of the layer's own weight.
        vocabulary: The outputs that are wanted, ascending, (n,); None: all.
    """
    if isinstance(module, nn.Linear) and dtype == "int8":
        module = Int8Linear(Int8Weight.of(module.weight), module.bias)
    if isinstance(module, Int8Linear):
        if vocabulary is not None:
            return module.limited(vocabulary)
        return WideInt8Linear(module) if module.out_features >= WIDE else module.forward
    weight: Tensor = module.weight
    bias: Tensor | None = module.bias
    if vocabulary is not None:
        weight, bias = weight.detach()[vocabulary], None if bias is None else bias.detach()[vocabulary]
    elif len(weight) >= WIDE and weight.device.type == "cpu":
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


class WideInt8Linear:
    """An output projection of 8 bits, whose products have memory of their own, as those of `WideLinear`."""

    def __init__(self, module: Int8Linear) -> None:
        self.module = module
        self._memory = torch.empty(0, module.out_features)

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        """(rows, inputs) to (rows, outputs)."""
        if len(x) > len(self._memory):
            self._memory = torch.empty(len(x), self.module.out_features)
        return self.module.write(x, self._memory[: len(x)])


def outputs_of(module: nn.Linear | Int8Linear, x: Tensor, rows: Tensor, outputs: Tensor) -> Tensor:
    """A few outputs of a layer, (n,): of row rows[i] the output outputs[i].

    Args:
        module: The layer.
        x: (all rows, inputs)
        rows: (n,)
        outputs: (n,)
    """
    if isinstance(module, Int8Linear):
        return module.outputs_of(x, rows, outputs)
    y = (x[rows] * module.weight[outputs]).sum(dim=1)
    return y if module.bias is None else y + module.bias[outputs]


def weight_bytes(module: nn.Module) -> int:
    """Of all linear layers in it, as they were when it was first asked for."""
    known = _weight_bytes.get(module)
    if known is None:
        layers = (part for part in module.modules() if isinstance(part, nn.Linear | Int8Linear))
        known = _weight_bytes[module] = sum(layer.weight.nbytes for layer in layers)
    return known


_weight_bytes: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()
