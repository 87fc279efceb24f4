"""Firefox Translations ("Bergamot", Marian "tiny" and "base") models in torch."""

from knn_seq.models.marian_tiny.configuration import FirefoxConfig
from knn_seq.models.marian_tiny.folder import find_model_folder, load_firefox
from knn_seq.models.marian_tiny.modeling import FirefoxCache, FirefoxForTranslation
from knn_seq.models.marian_tiny.tokenization import FirefoxTokenizer

__all__ = [
    "FirefoxCache",
    "FirefoxConfig",
    "FirefoxForTranslation",
    "FirefoxTokenizer",
    "find_model_folder",
    "load_firefox",
]
