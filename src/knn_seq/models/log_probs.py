"""Log-probabilities over a vocabulary, computed once."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def log_softmax(logits: Tensor) -> Tensor:
    """log p, (rows, vocabulary), in the place of the logits if that can be."""
    if logits.device.type == "cpu" and not logits.requires_grad and logits.is_contiguous():
        # New memory for rows × vocabulary at every step costs twice as much as the computation.
        return torch.log_softmax(logits, dim=-1, out=logits)
    return torch.log_softmax(logits, dim=-1)


class LogProbs(Tensor):
    """Log-probabilities, which a search need neither copy nor normalise again: both take long over a vocabulary.

    They stay what they are until its log_softmax; everything else makes plain tensors of them.
    """

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, arguments: tuple[Any, ...] = (), named: dict[str, Any] | None = None
    ) -> Any:
        named = named or {}
        with torch._C.DisableTorchFunctionSubclass():  # results are plain tensors
            if function in (F.log_softmax, torch.log_softmax, Tensor.log_softmax):
                return arguments[0].as_subclass(Tensor)
            if function is Tensor.to:
                taken = function(*arguments, **{**named, "copy": False})
                return taken.as_subclass(Tensor if cls is SampledLogProbs else cls)
            result = function(*arguments, **named)
            return result.as_subclass(cls) if function in (Tensor.__getitem__, Tensor.float) else result


class SampledLogProbs(LogProbs):
    """The same for greedy search and sampling, which take no log_softmax: what they take is a plain tensor."""
