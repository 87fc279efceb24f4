"""The settings that fit a domain best, from one search of a dev set."""

from knn_seq.tune.run import tune, tune_combiners
from knn_seq.tune.tuning import Tuning, best_tuning

__all__ = ["Tuning", "best_tuning", "tune", "tune_combiners"]
