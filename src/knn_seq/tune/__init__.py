"""The settings that fit a domain best, from one search of a dev set."""

from knn_seq.tune.tune import tune
from knn_seq.tune.tuning import Tuning

__all__ = ["Tuning", "tune"]
