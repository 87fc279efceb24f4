"""The shortlist of a datastore's model, learned from its sentence pairs."""

from __future__ import annotations

import numpy as np

from knn_seq.build.lexicon import learn_shortlist
from knn_seq.decoding.stored_shortlist import PARTS, shortlist_path
from knn_seq.errors import InvalidSetting
from knn_seq.models import Model
from knn_seq.models.encoder_decoder import EncoderDecoderModel
from knn_seq.storage import DatastoreFolder
from knn_seq.storage.atomic import disk_errors, partial_of, publish
from knn_seq.storage.flat import FlatWriter, create_flat


def require_encoder(model: Model) -> EncoderDecoderModel:
    """The model, or an `InvalidSetting` if it is none that a shortlist can be learned for."""
    if not isinstance(model, EncoderDecoderModel):
        raise InvalidSetting(
            f"{model.settings.name} cannot have a shortlist, which is for models with an encoder: "
            "leave out --shortlist."
        )
    return model


def add_shortlist(store: DatastoreFolder, model: Model) -> None:
    """Learn a shortlist for a datastore that is finished, in the place of one that it has."""
    encoder_decoder = require_encoder(model)
    with disk_errors(store.path), store.lock():
        store.reload()
        store_shortlist(store, encoder_decoder)


def store_shortlist(store: DatastoreFolder, model: EncoderDecoderModel) -> None:
    """Learn it from what the datastore has now, and keep it there, in the place of one that it has.

    Args:
        store: The datastore, whose lock the caller holds.
        model: Its model.
    """
    numbers = np.setdiff1d(np.arange(len(store.sources)), store.deleted, assume_unique=True)
    learned = learn_shortlist(
        store.sources, store.targets, model.vocabulary_size, numbers, always=sorted(model.end_tokens)
    )
    arrays = {part: np.asarray(getattr(learned, part), np.int64) for part in PARTS}
    path = shortlist_path(store)
    create_flat(partial_of(path), {part: (array.shape, np.int64) for part, array in arrays.items()})
    with FlatWriter(partial_of(path)) as writer:
        for part, array in arrays.items():
            writer.write(part, 0, array)
        writer.sync()
    publish(partial_of(path), path)
