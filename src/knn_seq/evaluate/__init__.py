"""Ways to translate, compared on the same test set."""

from knn_seq.evaluate.compare import SystemSetup, compare
from knn_seq.evaluate.comparison import Comparison, System
from knn_seq.metrics import Score
from knn_seq.metrics.bleu import bleu
from knn_seq.metrics.chrf import chrf, sentence_chrf

__all__ = ["Comparison", "Score", "System", "SystemSetup", "bleu", "chrf", "compare", "sentence_chrf"]
