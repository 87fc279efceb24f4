"""Neighbours and the model's distribution to one distribution."""

from knn_seq.combine.base import COMBINERS, Combination, Combiner, CombinerInputs
from knn_seq.combine.mixture import interpolate, mix_tokens, mix_vocabulary, neighbour_probability

__all__ = [
    "COMBINERS",
    "Combination",
    "Combiner",
    "CombinerInputs",
    "interpolate",
    "mix_tokens",
    "mix_vocabulary",
    "neighbour_probability",
]
