"""How likely reference translations are under any settings of the neighbours, from one search."""

from knn_seq.likelihood.predictions import Predictions, Reference, predict
from knn_seq.likelihood.surface import Grid, log_likelihoods, median_distance, temperatures_for

__all__ = ["Grid", "Predictions", "Reference", "log_likelihoods", "median_distance", "predict", "temperatures_for"]
