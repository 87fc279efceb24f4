"""Which examples a translation came from."""

from knn_seq.explain.evidence import Evidence, Explanation, Vote, explain

__all__ = ["Evidence", "Explanation", "Vote", "explain"]
