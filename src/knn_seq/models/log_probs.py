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
                return function(*arguments, **{**named, "copy": False}).as_subclass(cls)
            result = function(*arguments, **named)
            return result.as_subclass(cls) if function in (Tensor.__getitem__, Tensor.float) else result


def log_normalizers(logits: Tensor) -> Tensor | float:
    """What subtracted from each row of logits, (rows, vocabulary), makes log p of it: (rows,), or 0 if it is log p."""
    return 0.0 if isinstance(logits, LogProbs) else logits.float().logsumexp(dim=1)
