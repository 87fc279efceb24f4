"""Whether a datastore was made with the model that fairseq has loaded."""

from __future__ import annotations

import numpy as np

from knn_seq.datastore import Datastore
from knn_seq.errors import ModelMismatch
from knn_seq.fairseq.generate.network import FairseqNetwork
from knn_seq.models.base import TokenPair

LARGEST_ERROR = 0.05  # of a key, in its own length: half precision makes less, any other model much more


def require_fitting(store: Datastore, model: FairseqNetwork, vocabulary: str) -> None:
    """Raise a `ModelMismatch` if the model's keys are not those of the datastore.

    A fingerprint of the weights would depend on who has loaded them.  A sentence pair of the datastore, read once more,
    tells as well: weights, languages and the place of the key must all be the same for its keys to come out.

    Args:
        store: The datastore.
        model: The model that is going to ask it.
        vocabulary: The fingerprint of its dictionaries.
    """
    if store.manifest.model.vocabulary != vocabulary:
        raise _misfit(store, "their dictionaries differ")
    if not len(store):
        return
    number = int(np.argmax(store.values.lengths() > 0))
    first, last = store.values.offsets[number : number + 2]
    pair = TokenPair(store.sources[number].tolist(), store.targets[number].tolist())
    positions = store.locate(np.arange(first, last))[1]
    keys, computed = store.keys[first:last].astype(np.float32), model.keys([pair])[positions].float().cpu().numpy()
    if keys.shape != computed.shape:
        raise _misfit(store, f"keys have {keys.shape[1]} dimensions there and {computed.shape[1]} here")
    if not np.linalg.norm(keys - computed) <= LARGEST_ERROR * np.linalg.norm(keys):  # not: NaN is an error too
        raise _misfit(store, f"the keys ({model.settings.key}) of a sentence in it come out differently")


def _misfit(store: Datastore, difference: str) -> ModelMismatch:
    info = store.manifest.model
    return ModelMismatch(
        f"{store.path} was made with the model {info.spec}, which this one (--path) is not: {difference}."
    )
