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
    TokenPair,
    UnknownToken,
    as_model,
    load_model,
)
from knn_seq.models.step import Step, StepChanges, StepHook, StepView, StreamHook

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
    "StepView",
    "StreamHook",
    "TokenPair",
    "UnknownToken",
    "as_model",
    "load_model",
]
