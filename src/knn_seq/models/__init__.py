"""A model behind an adapter: tokens in, keys out, and a hook into its own decoding."""

from knn_seq.models.base import (
    MODELS,
    Fingerprint,
    Hypothesis,
    Model,
    ModelBackend,
    PairTokenizer,
    Scored,
    Source,
    Step,
    StepChanges,
    StepHook,
    StreamHook,
    TokenPair,
    UnknownToken,
    as_model,
    load_model,
)

__all__ = [
    "MODELS",
    "Fingerprint",
    "Hypothesis",
    "Model",
    "ModelBackend",
    "PairTokenizer",
    "Scored",
    "Source",
    "Step",
    "StepChanges",
    "StepHook",
    "StreamHook",
    "TokenPair",
    "UnknownToken",
    "as_model",
    "load_model",
]
