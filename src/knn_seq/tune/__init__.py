"""The settings that fit a domain best, from one search of a dev set."""

from knn_seq.tune.run import tune
from knn_seq.tune.tuning import Tuning

__all__ = ["Tuning", "tune"]
