"""Scores that another person can reproduce; a file per metric."""

from knn_seq.metrics.base import METRICS, Metric, Score

__all__ = ["METRICS", "Metric", "Score"]
