"""The second step: the key of every target token."""

from __future__ import annotations

from itertools import islice
from typing import Any

import torch

from knn_seq.build.background import BackgroundWriter, Rows
from knn_seq.build.batches import plan_batches
from knn_seq.build.sentences import Vectors
from knn_seq.models import Model, TokenPair
from knn_seq.progress import Progress
from knn_seq.settings import BuildSettings
from knn_seq.storage import DatastoreFolder, KeyWriter

NOTHING = {"batches": 0, "tokens": 0}


def store_keys(
    folder: DatastoreFolder, model: Model, settings: BuildSettings, identity: dict[str, Any], quiet: bool
) -> None:
    """Compute keys batch by batch and write each while the next is computed; goes on from the last checkpoint.

    Sentence vectors of the model's own encoder are written along: it reads each sentence only once.
    """
    sources, targets = folder.sources, folder.values
    writer, done = KeyWriter.open_or_create(
        folder.keys_path, (len(targets.items), model.dimension), settings.key_dtype, identity
    )
    start, dtype = done or NOTHING, getattr(torch, settings.key_dtype)
    with writer, Progress("keys", len(targets.items), "tokens", start["tokens"], quiet) as progress:
        if not writer.finished:
            along = Vectors.along_with_keys(folder, model, settings, start["batches"])
            writers = [writer, *([along.writer] if along else [])]
            with BackgroundWriter(writers, start, settings.checkpoint_seconds) as background:
                for batch in islice(plan_batches(sources, targets, settings.batch_tokens), start["batches"], None):
                    pairs = [TokenPair(sources[i].tolist(), targets[i].tolist()) for i in batch]
                    vectors = [along.rows(batch)] if along else []
                    keys = model.keys(pairs).to(dtype).cpu().numpy()
                    rows: Rows = targets.offsets[batch], [len(pair.target) for pair in pairs], keys
                    background.put(rows, *vectors)
                    progress.update(len(keys))
            if along:
                along.writer.finish()
        writer.finish()
