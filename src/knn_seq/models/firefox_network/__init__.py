"""Firefox Translations ("Bergamot", Marian "tiny" and "base") models in torch."""

from knn_seq.models.firefox_network.configuration import FirefoxConfig
from knn_seq.models.firefox_network.folder import find_model_folder, load_firefox
from knn_seq.models.firefox_network.modeling import FirefoxCache, FirefoxForTranslation
from knn_seq.models.firefox_network.tokenization import FirefoxTokenizer

__all__ = [
    "FirefoxCache",
    "FirefoxConfig",
    "FirefoxForTranslation",
    "FirefoxTokenizer",
    "find_model_folder",
    "load_firefox",
]
