"""Files of llama.cpp: a decoder-only model with its tokenizer in one file, mostly with weights of a few bits."""

from __future__ import annotations

import os
from importlib.util import find_spec

from knn_seq.errors import MissingLibrary

LIBRARIES = ("gguf", "accelerate")  # that Transformers reads such files with


def is_gguf(name: str) -> bool:
    """Whether a model's name is a file of that kind."""
    return name.endswith(".gguf") and os.path.isfile(name)


def require_gguf_libraries(name: str) -> None:
    """Raise a `MissingLibrary` if the file cannot be read here."""
    missing = [library for library in LIBRARIES if find_spec(library) is None]
    if missing:
        raise MissingLibrary(f"To read {name}, {' and '.join(missing)} must be installed: pip install 'knn-seq[gguf]'.")
