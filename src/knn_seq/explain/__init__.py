"""Which examples a translation came from."""

from knn_seq.explain.evidence import Evidence, Explanation, Vote, to_dicts
from knn_seq.explain.trace import changed_tokens, explain

__all__ = ["Evidence", "Explanation", "Vote", "changed_tokens", "explain", "to_dicts"]
