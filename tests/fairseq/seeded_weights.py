"""Weights from a seed, the same with and without fairseq."""

from __future__ import annotations

import numpy as np
import torch


def seeded_weights(shapes: dict[str, list[int]], seed: int, tied: dict[str, str]) -> dict[str, torch.Tensor]:
    """A state of a model.

    Args:
        shapes: The shape of each tensor by its name.
        seed: Of the random numbers.
        tied: Names of tensors that are others by these names.
    """
    generator = np.random.RandomState(seed)  # the one generator whose numbers NumPy promises never to change
    weights = {}
    for name, shape in sorted(shapes.items()):
        numbers = torch.from_numpy(generator.standard_normal(shape).astype(np.float32))
        # Layer norms near one and the rest small: like a real model, and no softmax is a single peak.
        weights[name] = 1 + 0.2 * numbers if "norm.weight" in name else 0.3 * numbers
    weights |= {name: weights[other] for name, other in tied.items()}
    for name in weights:
        if name.endswith("embed_tokens.weight"):
            weights[name][1] = 0.0  # padding
    return weights
