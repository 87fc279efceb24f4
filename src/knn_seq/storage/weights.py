"""Weights of small networks, with a description, as safetensors files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from knn_seq.errors import DamagedFile
from knn_seq.storage.atomic import disk_errors

DESCRIPTION = "description"


def save_weights(path: Path, weights: Mapping[str, Tensor], description: Mapping[str, Any]) -> None:
    """Write weights, and what they are for."""
    with disk_errors(path):
        plain = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
        save_file(plain, path, {DESCRIPTION: json.dumps(description)})


def load_weights(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `save_weights` wrote."""
    try:
        with safe_open(path, "pt") as file:
            description = json.loads((file.metadata() or {}).get(DESCRIPTION, "null"))
            if not isinstance(description, dict):
                raise DamagedFile(f"{path} does not say what its weights are for: train them again.")
            return {name: file.get_tensor(name) for name in file.keys()}, description  # noqa: SIM118
    except FileNotFoundError as error:
        raise DamagedFile(f"The trained weights {path} are missing: train them again (`knn-seq train`).") from error
    except (SafetensorError, OSError, ValueError) as error:
        if isinstance(error, DamagedFile):
            raise
        reason = str(error).splitlines()[0].rstrip(":.")
        raise DamagedFile(f"{path} holds no weights ({reason}): train them again (`knn-seq train`).") from error
