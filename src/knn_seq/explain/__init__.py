"""Which examples a translation came from."""

from knn_seq.explain.explain import changed_tokens, explain
from knn_seq.explain.explanation import Explanation, RetrievedToken, TokenExplanation, to_dicts

__all__ = ["Explanation", "RetrievedToken", "TokenExplanation", "changed_tokens", "explain", "to_dicts"]
