"""How likely reference translations are under any settings of the neighbours, from one search."""

from knn_seq.likelihood.calibrate import calibrate, held_out, most_likely
from knn_seq.likelihood.predictions import Predictions, Reference, predict, predict_batches
from knn_seq.likelihood.surface import Grid, log_likelihoods, median_distance, temperatures_for

__all__ = [
    "Grid",
    "Predictions",
    "Reference",
    "calibrate",
    "held_out",
    "log_likelihoods",
    "median_distance",
    "most_likely",
    "predict",
    "predict_batches",
    "temperatures_for",
]
