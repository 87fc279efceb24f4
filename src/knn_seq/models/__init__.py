"""A model behind an adapter: tokens in, keys out, and a hook into its own decoding."""

from knn_seq.models.base import (
    MODELS,
    Fingerprint,
    Model,
    ModelBackend,
    PairTokenizer,
    Scored,
    Source,
    Steer,
    Step,
    TokenPair,
    load_model,
)

__all__ = [
    "MODELS",
    "Fingerprint",
    "Model",
    "ModelBackend",
    "PairTokenizer",
    "Scored",
    "Source",
    "Steer",
    "Step",
    "TokenPair",
    "load_model",
]
