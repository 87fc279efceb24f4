"""What people do with a language model: perplexity, tuning on text, continuing a prompt."""

from knn_seq.language.generate import Continuation, generate
from knn_seq.language.perplexity import Perplexity, TextScore, perplexity
from knn_seq.language.text import Text, read_text
from knn_seq.language.tune import tune_text

__all__ = ["Continuation", "Perplexity", "Text", "TextScore", "generate", "perplexity", "read_text", "tune_text"]
