"""A GPU that is not there: tensors on "cuda" have shapes and devices and no numbers; what is on the CPU is real.

It refuses to mix devices, as a GPU does, and notes every place at which the host waits for the device.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

import knn_seq

PACKAGE = Path(knn_seq.__file__).parent
aten = torch.ops.aten


class FakeGpu(TorchDispatchMode):
    """While inside, "cuda:0" can be used.

    `waits` are the places where numbers were taken from the device, or where a shape depended on them, each as
    "file:function" of the innermost function of knn_seq.  The numbers are zeros, truth values are true, and one element
    is found.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[str] = []
        self._shapes, self._indexing = FakeTensorMode(), Indexing()

    def __enter__(self) -> FakeGpu:
        self._shapes.__enter__()
        super().__enter__()
        self._indexing.__enter__()
        self._tolist, FakeTensor.tolist = (
            FakeTensor.tolist,
            lambda tensor: tensor.cpu().tolist(),
        )  # once, not each number
        return self

    def __exit__(self, *error: object) -> None:
        FakeTensor.tolist = self._tolist
        self._indexing.__exit__(*error)
        super().__exit__(*error)
        self._shapes.__exit__(*error)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        values, _ = tree_flatten((args, kwargs))
        if not any(isinstance(value, FakeTensor) or _on_cuda(value) for value in values):
            with unset_fake_temporarily():
                return function(*args, **kwargs)
        if function is aten._local_scalar_dense.default:
            self._wait()
            return 0.0 if args[0].is_floating_point() else args[0].dtype == torch.bool
        if function is aten.nonzero.default:
            self._wait()
            return self._run(aten.new_empty.default, (args[0], (1, args[0].dim())), {"dtype": torch.int64})
        if function is aten._unique2.default:
            self._wait()
            one = self._run(aten.new_empty.default, (args[0], (1,)), {})
            inverse = self._run(aten.zeros_like.default, (args[0],), {"dtype": torch.int64})
            return one, inverse, inverse
        if function in (aten.index.Tensor, aten.index_put_.default, aten.index_put.default):
            args = (args[0], self._indices(args[1]), *args[2:])
        if function is aten.copy_.default and args[0].device != args[1].device:
            return self._copied(*args[:2])
        result = self._run(function, args, kwargs)
        if function is aten._to_copy.default and result.device.type == "cpu":
            self._wait()
            with unset_fake_temporarily():
                return torch.full(result.shape, result.dtype == torch.bool, dtype=result.dtype)
        return result

    def _copied(self, to, source):
        """From one device to the other."""
        torch.broadcast_to(torch.empty(source.shape, device="meta"), to.shape)
        if to.device.type == "cpu":
            self._wait()
            to.zero_()
        return to

    def _run(self, function, args, kwargs):
        """With tensors that have no numbers."""
        args, kwargs = tree_map(self._without_numbers, (args, kwargs))
        with self._shapes:
            return function(*args, **kwargs)

    def _without_numbers(self, value):
        real = isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor)
        return self._shapes.from_tensor(value) if real else value

    def _indices(self, indices):
        """Masks as the places where they hold, which the host has to know."""
        found = []
        for index in indices:
            if index is not None and index.dtype == torch.bool:
                self._wait()
                found += [torch.zeros(1, dtype=torch.int64)] * index.dim()
            else:
                found.append(index)
        return found

    def _wait(self) -> None:
        frame = sys._getframe(1)
        while frame is not None and not _is_ours(frame.f_code):
            frame = frame.f_back
        if frame is None:
            self.waits.append("a test")
        else:
            path = Path(frame.f_code.co_filename).relative_to(PACKAGE).as_posix()
            self.waits.append(f"{path}:{frame.f_code.co_name}")


def _is_ours(code) -> bool:
    """Whether it is a function of knn_seq; comprehensions are functions in some versions of Python only."""
    return PACKAGE in Path(code.co_filename).parents and not code.co_name.startswith("<")


class Indexing(TorchFunctionMode):
    """Methods of tensors on "cuda" that a torch without CUDA refuses, as the functions that they stand for."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.Tensor.contiguous and isinstance(args[0], FakeTensor):
            return args[0] if args[0].is_contiguous() else aten.clone(args[0], memory_format=torch.contiguous_format)
        if function in (torch.Tensor.__int__, torch.Tensor.__float__, torch.Tensor.__bool__):
            return {"__int__": int, "__float__": float, "__bool__": bool}[function.__name__](args[0].item())
        if function in (torch.Tensor.nonzero, torch.nonzero):
            return aten.nonzero.default(*args)
        if function is torch.Tensor.__invert__:
            return aten.bitwise_not.default(*args)
        if function is torch.Tensor.copy_:
            return aten.copy_.default(*args)
        if function is torch.Tensor.__getitem__ and isinstance(args[0], FakeTensor):
            part, indices = _basic_part(*args)
            return aten.index.Tensor(part, indices) if indices else part
        if function is torch.Tensor.__setitem__ and isinstance(args[0], FakeTensor):
            part, indices = _basic_part(*args[:2])
            value = torch.as_tensor(args[2])
            if indices:
                value = value.to(part.device, part.dtype) if not value.dim() else value
                return aten.index_put_.default(part, indices, value)
            return aten.copy_.default(part, value)
        return function(*args, **(kwargs or {}))


def _basic_part(tensor, index):
    """The view that numbers, slices and None select, and the tensors that select among its elements."""
    index = index if isinstance(index, tuple) else (index,)
    used = sum(each.dim() if _is_mask(each) else each is not None and each is not Ellipsis for each in index)
    indices, dimension = [], 0
    for each in index:
        if each is Ellipsis:
            indices += [None] * (tensor.dim() - dimension - used)
            dimension += tensor.dim() - dimension - used
        elif each is None:
            tensor = tensor.unsqueeze(dimension)
            indices.append(None)
            dimension += 1
        elif isinstance(each, int):
            tensor, used = tensor.select(dimension, each), used - 1
        elif isinstance(each, slice):
            start, stop, step = each.indices(tensor.shape[dimension])
            tensor = aten.slice.Tensor(tensor, dimension, start, max(start, stop), step)
            indices.append(None)
            dimension, used = dimension + 1, used - 1
        else:
            chosen = torch.as_tensor(each)
            indices.append(chosen)
            dimension, used = dimension + (chosen.dim() if _is_mask(chosen) else 1), used - 1
    return tensor, indices if any(each is not None for each in indices) else []


def _is_mask(index) -> bool:
    return isinstance(index, torch.Tensor) and index.dtype == torch.bool


def _on_cuda(value: object) -> bool:
    return isinstance(value, torch.device) and value.type == "cuda"
