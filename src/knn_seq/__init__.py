"""knn-seq: nearest-neighbour machine translation."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Datastore", "Translation", "Translator", "UserError", "__version__"]

if TYPE_CHECKING:
    from knn_seq.datastore import Datastore
    from knn_seq.errors import UserError
    from knn_seq.translate import Translator
    from knn_seq.translation import Translation

_HOMES = {
    "Datastore": "knn_seq.datastore",
    "Translation": "knn_seq.translation",
    "Translator": "knn_seq.translate",
    "UserError": "knn_seq.errors",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for only then: `knn-seq --help` must not wait for torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'knn_seq' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
