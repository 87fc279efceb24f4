"""A linear layer as a function, in the precision that a model runs in."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from knn_seq.models.int8 import Int8Linear, Int8Weight


def linear_for(
    module: nn.Linear | Int8Linear, dtype: str, vocabulary: Tensor | None = None
) -> Callable[[Tensor], Tensor]:
    """What a layer computes, (…, inputs) to (…, outputs).

    Args:
        module: The layer.
        dtype: "int8", or any other for the precision of the layer's own weight.
        vocabulary: The outputs that are wanted, ascending, (n,); None: all.
    """
    if isinstance(module, nn.Linear) and dtype == "int8":
        module = Int8Linear(Int8Weight.of(module.weight), module.bias)
    if isinstance(module, Int8Linear):
        return module.forward if vocabulary is None else module.limited(vocabulary)
    weight, bias = module.weight.detach(), None if module.bias is None else module.bias.detach()
    if vocabulary is not None:
        weight, bias = weight[vocabulary], None if bias is None else bias[vocabulary]
    return lambda x: F.linear(x, weight, bias)


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
