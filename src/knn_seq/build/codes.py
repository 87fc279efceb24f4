"""Keys as short codes, for subset search."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knn_seq.build.index import origin
from knn_seq.index.base import CHUNK_BYTES
from knn_seq.index.recipe import REFINE_KEYS
from knn_seq.runtime.progress import Progress
from knn_seq.settings import BuildSettings
from knn_seq.storage import DatastoreFolder, KeyWriter, Segment
from knn_seq.storage.folder import CODEC_NAME, CODES_NAME
from knn_seq.storage.replacement import Replacement
from knn_seq.subset.codec import EXACT, SAMPLE, KeyCodec, default_codes


def store_codes(
    folder: DatastoreFolder, segment: Segment, settings: BuildSettings, device: torch.device | str
) -> dict[str, Any]:
    """Encode all keys, or resume it, unless the codes in use are these; returns what the manifest says of the codes."""
    entries, dimension = segment.keys.shape
    metric = distance_metric_of(folder)
    recipe = default_codes(entries, dimension, metric) if settings.codes == "auto" else settings.codes
    described = {"codes": recipe, "metric": metric}
    if recipe == EXACT:
        return described
    identity = origin(folder, segment) | described | {"keys": [entries, dimension]}
    subset = folder.manifest.subset
    replacement = Replacement(folder.path, "codes", identity, subset.codes_folder if subset else None)
    if not replacement.needed:
        return described | {"codes_folder": replacement.in_use}
    replacement.prepare()
    if not replacement.complete:
        replacement.new.mkdir(exist_ok=True)
        codec = KeyCodec(dimension, metric, recipe.removesuffix(REFINE_KEYS))
        _train(segment.keys, codec, replacement.new / CODEC_NAME)
        _encode(segment.keys, codec, replacement.new, identity, settings, device)
    return described | {"codes_folder": replacement.publish()}


def distance_metric_of(folder: DatastoreFolder) -> str:
    """That of the datastore's default index."""
    return folder.manifest.indexes[str(folder.manifest.default_index)].metric


def _train(keys: NDArray[Any], codec: KeyCodec, path: Path) -> None:
    if path.exists():
        codec.load(path)
        return
    size = min(SAMPLE, len(keys))
    rows = np.sort(np.random.default_rng(0).choice(len(keys), size, replace=False, shuffle=False))
    codec.train(torch.from_numpy(keys[rows].astype(np.float32)))
    codec.save(path)


def _encode(
    keys: NDArray[Any],
    codec: KeyCodec,
    new: Path,
    identity: dict[str, Any],
    settings: BuildSettings,
    device: torch.device | str,
) -> None:
    identity = identity | {"codec": hashlib.sha256((new / CODEC_NAME).read_bytes()).hexdigest()}
    writer, done = KeyWriter.open_or_create(new / CODES_NAME, (len(keys), codec.bytes), np.uint8, identity, "codes")
    step, last = max(CHUNK_BYTES // (4 * keys.shape[1]), 1), time.monotonic()
    start = len(keys) if writer.finished else (done or {"entries": 0})["entries"]
    with writer, Progress(f"codes {codec.recipe}", len(keys), "key", start) as progress:
        for first in range(start, len(keys), step):
            chunk: Tensor = torch.from_numpy(keys[first : first + step].copy()).to(device).float()
            writer.write(first, codec.encode(chunk))
            progress.update(len(chunk))
            if time.monotonic() - last >= settings.checkpoint_seconds:
                writer.checkpoint({"entries": first + len(chunk)})
                last = time.monotonic()
        writer.finish()
