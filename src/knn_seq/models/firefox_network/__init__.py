"""Firefox Translations ("Bergamot", Marian "tiny" and "base") models in torch."""

from typing import TYPE_CHECKING, Any

from knn_seq.models.firefox_network.folder import find_model_folder, load_firefox
from knn_seq.models.firefox_network.layers import EncoderOutput, FirefoxCache
from knn_seq.models.firefox_network.modeling import FirefoxNetwork
from knn_seq.models.firefox_network.tokenization import FirefoxTokenizer

if TYPE_CHECKING:
    from knn_seq.models.firefox_network.configuration import FirefoxConfig
    from knn_seq.models.firefox_network.for_transformers import FirefoxForTranslation

__all__ = [
    "EncoderOutput",
    "FirefoxCache",
    "FirefoxConfig",
    "FirefoxForTranslation",
    "FirefoxNetwork",
    "FirefoxTokenizer",
    "find_model_folder",
    "load_firefox",
]


def __getattr__(name: str) -> Any:
    """What belongs to Transformers is imported when it is asked for: that takes seconds."""
    if name not in ("FirefoxConfig", "FirefoxForTranslation"):
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from knn_seq.models.firefox_network import for_transformers

    return getattr(for_transformers, name)
