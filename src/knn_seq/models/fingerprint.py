"""A model's identity, from its weights and not from its name."""

from __future__ import annotations

import hashlib

import torch
from torch import nn

VALUES_PER_TENSOR = 4096


def weights_fingerprint(network: nn.Module) -> str:
    """A hash of every parameter's shape and an even sample of its values.

    Names do not count: libraries rename parameters from version to version, and the weights stay the same.
    """
    digests = []
    for parameter in network.parameters():
        flat = parameter.detach().reshape(-1)
        step = max(1, flat.numel() // VALUES_PER_TENSOR)
        sample = flat[::step].to("cpu", torch.float32).contiguous()
        digests.append(hashlib.sha256(repr(tuple(parameter.shape)).encode() + sample.numpy().tobytes()).digest())
    return hashlib.sha256(b"".join(sorted(digests))).hexdigest()[:32]


def vocabulary_fingerprint(vocabulary: dict[str, int]) -> str:
    """A hash of all tokens and their numbers."""
    lines = "\n".join(f"{number}\t{token}" for token, number in sorted(vocabulary.items()))
    return hashlib.sha256(lines.encode("utf-8", "surrogatepass")).hexdigest()[:32]
