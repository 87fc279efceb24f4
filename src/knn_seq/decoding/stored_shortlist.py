"""The shortlist that a datastore keeps for its model."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from knn_seq.errors import DamagedFile, InvalidSetting, NotFound
from knn_seq.models import Model
from knn_seq.models.encoder_decoder import EncoderDecoderModel
from knn_seq.models.shortlist import Shortlist
from knn_seq.storage import DatastoreFolder
from knn_seq.storage.flat import open_flat
from knn_seq.storage.translation_memory import TranslationMemory

SHORTLIST_NAME = "shortlist.h5"
PARTS = ("offsets", "targets", "frequent")  # int64 each, as `Shortlist` has them


def shortlist_path(store: DatastoreFolder) -> Path:
    """Where a datastore keeps it."""
    return store.path / SHORTLIST_NAME


def lacks_shortlist(model: Model) -> bool:
    """Whether a model is to have a shortlist and does not come with one."""
    return model.settings.shortlist and getattr(model, "shortlist", None) is None


def attach_shortlist(store: DatastoreFolder | TranslationMemory, model: Model) -> None:
    """Let a model that is to have a shortlist, and has none of its own, have that of its datastore."""
    if not lacks_shortlist(model):
        return
    if not isinstance(store, DatastoreFolder) or not isinstance(model, EncoderDecoderModel):
        raise InvalidSetting(
            f"There is no shortlist for {model.settings.name}: it comes with none, and datastores have them for models "
            "with an encoder."
        )
    model.shortlist = open_shortlist(store, model.vocabulary_size)


def open_shortlist(store: DatastoreFolder, size: int) -> Shortlist:
    """That of a datastore, for a vocabulary of this size; a `NotFound` if none was learned."""
    path = shortlist_path(store)
    try:
        found = open_flat(path)
    except NotFound:
        raise NotFound(
            f"{store.path} has no shortlist: run `knn-seq index {store.path} --shortlist`, or leave out --shortlist."
        ) from None
    if any(part not in found for part in PARTS):
        raise DamagedFile(f"{path} is damaged: run `knn-seq index {store.path} --shortlist`.")
    offsets, targets, frequent = (np.asarray(found[part]) for part in PARTS)
    ascends = len(offsets) and offsets[0] == 0 and offsets[-1] == len(targets) and (np.diff(offsets) >= 0).all()
    known = all(((part >= 0) & (part < size)).all() for part in (targets, frequent))
    if not ascends or not known:
        raise DamagedFile(f"{path} is damaged, or of another model: run `knn-seq index {store.path} --shortlist`.")
    return Shortlist(offsets, targets, frequent, size)
