"""How large the weights of a Transformers model are, before they are loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from knn_seq.models.gguf import is_gguf

# As `from_pretrained` looks for them; a folder may hold the same weights in other forms, too.
FILES = ("model.safetensors", "model-*-of-*.safetensors", "pytorch_model.bin", "pytorch_model-*-of-*.bin")
NUMBER_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int8": 4}  # int8 begins as float32


def stored_weights(name: str, dtype: str) -> int:
    """The bytes of a model's weights in a dtype; 0 if it is not on this machine, or nobody knows.

    Args:
        name: A folder, a GGUF file, or a model of the hub.
        dtype: That the model is to run in.
    """
    if is_gguf(name):  # of a few bits each, of which nobody knows how many before it is read
        return Path(name).stat().st_size
    folder = Path(name) if Path(name).is_dir() else _downloaded(name)
    if folder is None:
        return 0
    found = next((files for pattern in FILES if (files := list(folder.glob(pattern)))), [])
    stored, wanted = NUMBER_BYTES.get(_dtype_of(folder)), NUMBER_BYTES.get(dtype)
    if stored is None or wanted is None:
        return 0
    return sum(file.stat().st_size for file in found) * wanted // stored


def _dtype_of(folder: Path) -> str:
    """What the configuration says of the stored weights; "" if they are packed, or it does not tell."""
    try:
        config: Any = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        return "" if "quantization_config" in config else str(config.get("dtype") or config.get("torch_dtype") or "")
    except (OSError, ValueError, AttributeError, TypeError):
        return ""


def _downloaded(name: str) -> Path | None:
    """The folder of a model that the hub's cache has."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        config = try_to_load_from_cache(name, "config.json")
    except HFValidationError:
        return None
    return Path(config).parent if isinstance(config, str) else None
