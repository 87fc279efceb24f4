"""Neighbours and the model's distribution to one distribution."""

from knn_seq.combine.base import COMBINERS, Combination, Combiner, CombinerInputs, has_own_temperature
from knn_seq.combine.mixture import interpolate, mix_retrieved, mix_tokens, mix_vocabulary, neighbour_probability

__all__ = [
    "COMBINERS",
    "Combination",
    "Combiner",
    "CombinerInputs",
    "has_own_temperature",
    "interpolate",
    "mix_retrieved",
    "mix_tokens",
    "mix_vocabulary",
    "neighbour_probability",
]
