"""knn-seq: nearest-neighbour machine translation."""

import logging
from typing import TYPE_CHECKING, Any

from knn_seq.runtime.environment import prepare_environment

__version__ = "0.1.0"
__all__ = ["Datastore", "Glossary", "KnnSeqError", "Term", "Translation", "Translator", "__version__"]

logging.getLogger(__name__).addHandler(logging.NullHandler())
prepare_environment()  # here, since it has to be before torch is first used

if TYPE_CHECKING:
    from knn_seq.datastore import Datastore
    from knn_seq.decoding.translation import Translation
    from knn_seq.errors import KnnSeqError
    from knn_seq.glossary import Glossary, Term
    from knn_seq.translator import Translator

_MODULES = {
    "Datastore": "knn_seq.datastore",
    "Glossary": "knn_seq.glossary",
    "KnnSeqError": "knn_seq.errors",
    "Term": "knn_seq.glossary",
    "Translation": "knn_seq.decoding.translation",
    "Translator": "knn_seq.translator",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for only then: `knn-seq --help` must not wait for torch."""
    if name not in _MODULES:
        raise AttributeError(f"module 'knn_seq' has no attribute '{name}'")
    from importlib import import_module

    from knn_seq.runtime.libraries import require_memory_for_libraries

    require_memory_for_libraries()
    return getattr(import_module(_MODULES[name]), name)
