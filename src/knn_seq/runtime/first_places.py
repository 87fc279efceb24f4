from __future__ import annotations

import torch
from torch import Tensor


def first_places(numbers: Tensor) -> Tensor:
    """For each of a row's numbers, (rows, n), where the same number is first in that row, (rows, n)."""
    if not numbers.is_cpu:
        return first_places_on_device(numbers)
    array = numbers.numpy()  # whose calls cost less than torch's
    return torch.from_numpy((array[:, :, None] == array[:, None, :]).argmax(axis=2))


def first_places_on_device(numbers: Tensor) -> Tensor:
    """The same without waiting for the device."""
    return (numbers.unsqueeze(2) == numbers.unsqueeze(1)).to(torch.int8).argmax(dim=2)
