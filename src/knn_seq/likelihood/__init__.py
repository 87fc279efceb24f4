"""How likely reference translations are under any settings of the neighbours, from one search."""

from knn_seq.likelihood.calibrate import calibrate, held_out, most_likely, some_of_text, usual_k
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
    "some_of_text",
    "temperatures_for",
    "usual_k",
]
