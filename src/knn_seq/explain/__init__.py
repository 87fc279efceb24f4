"""Which examples a translation came from."""

from knn_seq.explain.explain import changed_tokens, explain
from knn_seq.explain.explanation import Explanation, RetrievedToken, TokenExplanation, to_dicts
from knn_seq.explain.text import as_text

__all__ = ["Explanation", "RetrievedToken", "TokenExplanation", "as_text", "changed_tokens", "explain", "to_dicts"]
