"""The search settings that a datastore carries: its defaults, and those tuned for a retriever, combiner and index."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from knn_seq.settings import SearchSettings, override, with_value
from knn_seq.storage import DatastoreFolder, Manifest
from knn_seq.storage.manifest import StoredSettings

VANILLA = "full/fixed"  # what a build measures, whatever it trains
NUMBERS = ("k", "temperature", "weight")
PARTS = ("retriever", "combiner", "index")  # a datastore has settings of its own for each choice of them


def settings_name(settings: SearchSettings) -> str:
    """What tuned settings are stored under: "full/fixed", with "/NAME" behind for an index that is not the default."""
    return "/".join(filter(None, (settings.retriever, settings.combiner, settings.index)))


def stored_settings(
    store: DatastoreFolder, retriever: str | None = None, combiner: str | None = None, index: str | None = None
) -> SearchSettings:
    """The datastore's own settings: those tuned for these parts, or else its defaults.

    Args:
        store: The datastore.
        retriever: Its name; None: the default one.
        combiner: Its name; None: the default one.
        index: The name of one of the datastore's indexes; None: its default one.
    """
    manifest = store.manifest
    defaults = override(SearchSettings(), manifest.defaults)
    named = override(defaults, {"retriever": retriever, "combiner": combiner, "index": index})
    # Options belong to the part that declares them.
    others = [part for part in PARTS if getattr(named, part) != getattr(defaults, part)]
    dropped: dict[str, Any] = {f"{part}_options": {} for part in others}
    named = replace(named, **dropped)
    tuned = manifest.tuned.get(settings_name(named))
    if tuned is None and named.combiner != defaults.combiner:  # one that learned its own has none for others
        tuned = cast(StoredSettings, {n: v for n, v in manifest.tuned.get(VANILLA, {}).items() if n in NUMBERS})
    return override(named, tuned or {})


def store_settings(store: DatastoreFolder, settings: SearchSettings, as_default: bool) -> None:
    """Keep tuned settings where `stored_settings` finds them.

    Args:
        store: The datastore.
        settings: The settings.
        as_default: Make them the datastore's defaults, too.
    """
    with store.lock():
        manifest = Manifest.load(store.path)
        median = manifest.defaults.get("median_distance")
        measured = {} if median is None else {"median_distance": median}
        chosen = cast(StoredSettings, {**with_value(settings), **measured})
        manifest.tuned[settings_name(settings)] = chosen
        if as_default:
            before = override(SearchSettings(), manifest.defaults)
            manifest.tuned.setdefault(settings_name(before), manifest.defaults)
            manifest.defaults = chosen
        store.save(manifest)


def median_distance(store: DatastoreFolder, settings: SearchSettings) -> float | None:
    """A usual distance of neighbours that are found with these settings, if one was measured."""
    manifest = store.manifest
    tuned = manifest.tuned.get(settings_name(settings), {})
    # Another index may have another metric.
    measured = manifest.defaults if settings.index in (None, manifest.defaults.get("index")) else {}
    return tuned.get("median_distance", measured.get("median_distance"))
