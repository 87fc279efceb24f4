"""How likely reference translations are under any settings of the neighbours, from one search."""

from knn_seq.likelihood.calibrate import calibrate
from knn_seq.likelihood.predictions import Predictions, Reference, predict, predict_batches
from knn_seq.likelihood.surface import Grid, log_likelihoods, median_distance, temperatures_for

__all__ = [
    "Grid",
    "Predictions",
    "Reference",
    "calibrate",
    "log_likelihoods",
    "median_distance",
    "predict",
    "predict_batches",
    "temperatures_for",
]
