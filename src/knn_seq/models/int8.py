"""Linear layers in integers of 8 bits: a quarter of the bytes, and several times the products a second on a CPU.

    y = W x + b  ≈  s_x · (s_w ∘ (W_q x_q)) + m_x · (W 1) + b

W_q has a scale for each output, found once.  x_q has a middle and a scale for each row, found from its smallest and its
largest number, so what comes out for a row does not depend on the rows beside it; the product of integers is exact.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEVELS = 127  # of a weight, and of an activation where the CPU multiplies 8 by 8 bits without overflow
FEWER_LEVELS = 63  # of an activation elsewhere: sums of two products must fit into 16 bits
TINY = torch.finfo(torch.float32).tiny  # divides a row whose numbers are all the same
BLOCK = 1 << 14  # outputs that are computed at a time: what is done to them finds them in the CPU's cache
ZERO = 128  # what fbgemm, whose left factor has no sign, adds to an activation

Product = Callable[[Tensor], Tensor]
"""x, (rows, inputs), to W x without its bias, (rows, outputs)."""


class Int8Weight(NamedTuple):
    """A matrix whose rows have a scale each."""

    values: Tensor  # (outputs, inputs) int8
    scales: Tensor  # (outputs,) float32: what a 1 stands for

    @classmethod
    def of(cls, weight: Tensor, scales: Tensor | None = None) -> Int8Weight:
        """The nearest to a matrix, (outputs, inputs).

        Args:
            weight: The matrix.
            scales: Those that it was quantized with before, (outputs,): nothing is lost; None: its largest numbers'.
        """
        weight = weight.detach().float()
        if scales is None:
            scales = (weight.abs().amax(dim=1) / LEVELS).clamp(min=TINY)
        values = (weight / scales[:, None]).round_().clamp_(-LEVELS, LEVELS).to(torch.int8)
        return cls(values, scales)

    def float(self) -> Tensor:
        """The matrix that it stands for."""
        return self.values.float() * self.scales[:, None]

    def sums(self) -> Tensor:
        """The sum of each row, (outputs,): what an input of ones gives."""
        return self.values.sum(dim=1) * self.scales

    def rows(self, ids: Tensor) -> Int8Weight:
        """The matrix of some outputs, (ids,)."""
        return Int8Weight(self.values.index_select(0, ids), self.scales.index_select(0, ids))


class Int8Linear(nn.Module):
    """A linear layer with a weight of 8 bits and activations that are rounded to 8 bits.

    Args:
        weight: The weight.
        bias: (outputs,), or None.
        twice: Multiply what rounding has left over, too: activations of 16 bits, for twice the work.
    """

    def __init__(self, weight: Int8Weight, bias: Tensor | None, twice: bool = False) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.values.shape
        # Plain tensors: no optimiser, `to(dtype)` or fingerprint may take them for parameters.
        self.weight, self.scales = weight
        self.bias = None if bias is None else bias.detach().float()
        self._sums = weight.sums()
        parts = zip(torch.split(weight.values, BLOCK), torch.split(weight.scales, BLOCK), strict=True)
        self._products = [_product(Int8Weight(*part), twice) for part in parts]

    def forward(self, x: Tensor) -> Tensor:
        """(…, inputs) to (…, outputs)."""
        rows = x if x.dim() == 2 else x.reshape(-1, self.in_features)
        if len(self._products) == 1:
            y = _by_row(rows, self._products[0], self._sums, self.bias)
        else:
            y = self.write(rows, rows.new_empty(len(rows), self.out_features))
        return y if x.dim() == 2 else y.view(*x.shape[:-1], self.out_features)

    def write(self, x: Tensor, y: Tensor) -> Tensor:
        """The same of (rows, inputs) into memory that is there, (rows, outputs); returns this."""
        middle, half = _range(x)
        x = (x - middle).div_(half)
        biases = [None] * len(self._products) if self.bias is None else torch.split(self.bias, BLOCK)
        parts = torch.split(self._sums, BLOCK), biases, torch.split(y, BLOCK, dim=1)
        for product, sums, bias, into in zip(self._products, *parts, strict=True):
            part = product(x).mul_(half)
            if bias is None:
                torch.addcmul(part, middle, sums, out=into)
            else:
                torch.add(part.addcmul_(middle, sums), bias, out=into)
        return y

    def limited(self, ids: Tensor) -> Callable[[Tensor], Tensor]:
        """The layer with some of its outputs only, (ids,), for (rows, inputs)."""
        product = unpacked_product(Int8Weight(self.weight, self.scales).rows(ids))
        bias, sums = None if self.bias is None else self.bias.index_select(0, ids), self._sums.index_select(0, ids)
        return lambda x: _by_row(x, product, sums, bias)

    def outputs_of(self, x: Tensor, rows: Tensor, outputs: Tensor) -> Tensor:
        """Of row rows[i] of x, (all rows, inputs), the output outputs[i], (n,)."""
        levels = _kernel().levels
        middle, half = _range(x)
        rounded = ((x - middle) / half * levels).round_()
        # Sums of products of integers are exact in float32, too, up to a thousand inputs.
        products = (rounded[rows] * self.weight[outputs]).sum(dim=1) * (self.scales[outputs] / levels)
        y = products * half[rows, 0] + middle[rows, 0] * self._sums[outputs]
        return y if self.bias is None else y + self.bias[outputs]

    def extra_repr(self) -> str:
        """For people."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


def quantize_linears(network: nn.Module) -> None:
    """Replace every linear layer of a network by one of 8 bits; embeddings, norms and attention stay as they are.

    Weights that had 8 bits before keep them exactly: their scales are in the network's attribute `weight_scales`, by
    the paths of the layers, if it has one.  Its `sensitive` layers, by the ends of their paths, multiply twice.
    """
    weight_scales: dict[str, Tensor] = getattr(network, "weight_scales", {})
    sensitive: tuple[str, ...] = getattr(network, "sensitive", ())
    done: dict[nn.Module, Int8Linear] = {}
    for path, module in list(network.named_modules(remove_duplicate=False)):
        weight = _matrix(module)
        if weight is None:
            continue
        if module not in done:
            quantized = Int8Weight.of(weight, weight_scales.get(path))
            done[module] = Int8Linear(quantized, module.bias, path.endswith(sensitive))
        parent, _, name = path.rpartition(".")
        setattr(network.get_submodule(parent), name, done[module])


def _matrix(module: nn.Module) -> Tensor | None:
    """The weight of a linear layer, (outputs, inputs); None: it is none, or others read its weight."""
    if isinstance(module, nn.modules.linear.NonDynamicallyQuantizableLinear):
        return None
    if isinstance(module, nn.Linear):
        return module.weight
    if type(module).__name__ == "Conv1D" and type(module).__module__ == "transformers.pytorch_utils":
        return module.weight.t()  # type: ignore[operator]  # of GPT-2
    return None


def _by_row(x: Tensor, product: Product, sums: Tensor, bias: Tensor | None) -> Tensor:
    middle, half = _range(x)
    y = product((x - middle).div_(half)).mul_(half).addcmul_(middle, sums)
    return y if bias is None else y.add_(bias)


def _range(x: Tensor) -> tuple[Tensor, Tensor]:
    """The middle between the smallest and the largest number of each row, and how far these are from it, (rows, 1)."""
    # Two passes: torch.aminmax of rows takes ten times as long as both.
    smallest, largest = x.amin(dim=1, keepdim=True), x.amax(dim=1, keepdim=True)
    middle = torch.lerp(smallest, largest, 0.5)
    return middle, (largest - middle).clamp_(min=TINY)


class _Kernel(NamedTuple):
    """What multiplies integers of 8 bits here, exactly."""

    packs: bool  # fbgemm: with weights that are brought into its order once
    multiplies: bool  # `torch._int_mm`: with weights as they are
    levels: int  # of an activation


@cache
def _kernel() -> _Kernel:
    """Found out by trying: some CPUs lose what does not fit into 16 bits on the way."""
    for levels in (LEVELS, FEWER_LEVELS):
        packs, multiplies = _exact(_packed, levels), _exact(_plain, levels)
        if packs or multiplies:
            return _Kernel(packs, multiplies, levels)
    return _Kernel(False, False, LEVELS)


def fast_int8() -> bool:
    """Whether this CPU multiplies integers of 8 bits faster than floats: it has instructions for it."""
    kernel = _kernel()
    return kernel.packs and kernel.levels == LEVELS


def _exact(make: Callable[[Int8Weight, int], Product], levels: int) -> bool:
    weight = Int8Weight(torch.full((64, 256), LEVELS, dtype=torch.int8), torch.ones(64))
    weight.values[::2] = -LEVELS
    x = torch.ones(32, 256)
    x[1::2] = -1
    try:
        return bool(torch.allclose(make(weight, levels)(x), F.linear(x, weight.float())))
    except (RuntimeError, AttributeError, NotImplementedError):
        return False


def unpacked_product(weight: Int8Weight) -> Product:
    """The product with a weight that is used for a short time: nothing is prepared."""
    if _kernel().multiplies and weight.values.shape[1] > 1:  # `_int_mm` is wrong for one input
        return _plain(weight, _kernel().levels)
    return _float(weight, _kernel().levels)


def _product(weight: Int8Weight, twice: bool) -> Product:
    """The product with a weight that stays: it is prepared."""
    product = _packed(weight, _kernel().levels) if _kernel().packs else unpacked_product(weight)
    return _twice(product, _kernel().levels) if twice else product


def _twice(product: Product, levels: int) -> Product:
    def both(x: Tensor) -> Tensor:
        rest = (x - (x * levels).round_() / levels) * (2 * levels)  # from -1 to 1
        return product(x).add_(product(rest), alpha=1 / (2 * levels))

    return both


def _packed(weight: Int8Weight, levels: int) -> Product:
    multiply, packed = _fbgemm(), _pack(weight)

    def product(x: Tensor) -> Tensor:
        # Else torch asks the packed weight for a method it lacks: the exception inside takes twice as long as this.
        with torch._C.DisableTorchFunctionSubclass():
            return multiply(x, 1 / levels, ZERO, packed)

    return product


def _plain(weight: Int8Weight, levels: int) -> Product:
    right, scales = weight.values.t(), weight.scales / levels
    return lambda x: torch._int_mm((x * levels).round_().to(torch.int8), right) * scales


def _float(weight: Int8Weight, levels: int) -> Product:
    real = weight.float() / levels
    return lambda x: F.linear((x * levels).round_(), real)


def _fbgemm() -> Callable[..., Tensor]:
    """Rounds its left factor, multiplies, and gives floats."""
    operators: Any = torch.ops.quantized
    # Called through the operator itself, torch would look in Python for what is traced, longer than it multiplies.
    return operators.linear_with_input_q_dq_qweight_dq_output_fp32.default._op  # type: ignore[no-any-return]


def _pack(weight: Int8Weight) -> Any:
    """A weight in the order that fbgemm reads it in."""
    zeros = torch.zeros(len(weight.scales), dtype=torch.int64)
    before = torch.backends.quantized.engine
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that its quantized tensors will go; then `_kernel` finds the other
        quantized = torch._make_per_channel_quantized_tensor(weight.values, weight.scales, zeros, 0)
        try:
            torch.backends.quantized.engine = "fbgemm"
            return torch.ops.quantized.linear_prepack(quantized, None)
        finally:
            torch.backends.quantized.engine = before
