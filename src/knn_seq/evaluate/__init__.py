"""Scores that another person can reproduce."""

from knn_seq.evaluate.compare import Comparison, System, compare
from knn_seq.evaluate.scores import Score, bleu, chrf

__all__ = ["Comparison", "Score", "System", "bleu", "chrf", "compare"]
