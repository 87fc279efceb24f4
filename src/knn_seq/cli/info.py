"""knn-seq info: what a datastore is."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from knn_seq.cli.colours import rows

if TYPE_CHECKING:
    from knn_seq.storage import CombinerInfo, DatastoreFolder, IndexInfo, SubsetInfo
    from knn_seq.storage.manifest import Manifest, PruningInfo

HELP = "show what a datastore is and the settings it carries"
EXAMPLE = "knn-seq info store/"
TRAIN_AGAIN = 0.2  # of the sentence pairs: when so many have changed, what was learned from them may fit less well


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("store", help="the datastore's folder")
    parser.add_argument("--json", action="store_true", help="the complete manifest as JSON")


def run(arguments: argparse.Namespace) -> None:
    """Print it."""
    from knn_seq.storage import DatastoreFolder

    folder = DatastoreFolder(arguments.store)
    print(json.dumps(folder.manifest.to_dict(), indent=2, ensure_ascii=False) if arguments.json else describe(folder))


def describe(folder: DatastoreFolder) -> str:
    """A datastore in a few lines."""
    from knn_seq.runtime.sizes import format_bytes

    manifest = folder.manifest
    counts, keys = manifest.counts, manifest.keys
    size = sum(file.stat().st_size for file in folder.path.rglob("*") if file.is_file())
    rejected = ", ".join(f"{count:,} {reason}" for reason, count in counts.rejected.items())
    trained = {combiner.type for combiner in manifest.combiners.values()}
    facts = {
        "datastore": str(folder.path),
        "model": f"{manifest.model.spec} ({manifest.model.architecture}, fingerprint {manifest.model.fingerprint[:8]})",
        **({"prompt": _on_one_line(manifest.model.shown_prompt)} if manifest.model.shown_prompt else {}),
        "corpus": manifest.corpus.description,
        "sentences": f"{counts.sentences:,}" + (f" (left out: {rejected})" if rejected else ""),
        "entries": f"{counts.tokens:,}",
        **({"segments": _segments(manifest)} if not manifest.compacted else {}),
        **({"changes": _changes(manifest)} if manifest.changes else {}),
        **({"pruned": _pruned(manifest.pruned)} if manifest.pruned else {}),
        "keys": f"{keys.kind}, {keys.dimension} × {keys.dtype}",
        **{f"index {name}": _index(index) for name, index in manifest.indexes.items()},
        **({"subsets": _subsets(manifest.subset)} if manifest.subset else {}),
        **{f"combiner {name}": _combiner(combiner) for name, combiner in manifest.combiners.items()},
        "settings": _settings(manifest.defaults, trained) or "none yet",
        **{f"tuned {name}": _settings(tuned, trained) for name, tuned in manifest.tuned.items()},
        **({"glossary": f"{manifest.glossary.terms:,} terms"} if manifest.glossary else {}),
        "on disk": format_bytes(size),
        "state": _state(manifest.unfinished_step()),
    }
    return rows(facts, 14, sys.stdout)


def _segments(manifest: Manifest) -> str:
    """What a compaction would fold."""
    added = list(manifest.segments.values())[1:]
    gone = manifest.deleted.sentences if manifest.deleted else 0
    pairs = sum(info.sentences for info in added)
    return f"{len(manifest.segments):,}; {pairs:,} sentence pairs in later ones, {gone:,} deleted and still on disk"


def _changes(manifest: Manifest) -> str:
    """How much has changed since combiners were trained."""
    said = f"{manifest.added:,} sentence pairs added and {manifest.removed:,} deleted since it was built"
    old = [name for name, info in manifest.combiners.items() if _share(manifest, info.changes) > TRAIN_AGAIN]
    if not manifest.combiners and _share(manifest, 0) > TRAIN_AGAIN:
        old = ["settings"]
    return said + (f"; train again (`knn-seq train`): {', '.join(old)}" if old else "")


def _share(manifest: Manifest, before: int) -> float:
    return (manifest.changes - before) / max(manifest.counts.sentences, 1)


def _on_one_line(prompt: str) -> str:
    return json.dumps(prompt, ensure_ascii=False)


def _settings(settings: Mapping[str, Any], trained: set[str]) -> str:
    """What `translate` uses, those measured along the way left out.

    Args:
        settings: As the datastore has them.
        trained: The names of its trained combiners.
    """
    from dataclasses import fields

    from knn_seq.settings import SearchSettings

    names = [entry.name for entry in fields(SearchSettings) if settings.get(entry.name) not in (None, {})]
    if settings.get("combiner") in trained and "temperature" in names:
        names.remove("temperature")  # it has its own
    return ", ".join(f"{name.replace('_', ' ')} {_readable(settings[name])}" for name in names)


def _combiner(combiner: CombinerInfo) -> str:
    """What a combiner was trained on, and what it makes of held-out tokens."""
    others = f", {combiner.general_sentences:,} general sentences" if combiner.general_sentences else ""
    likelihoods = ", ".join(f"{name} {value:.3f}" for name, value in combiner.log_likelihoods.items())
    return f"{combiner.type}, k up to {combiner.k}, trained on {combiner.tokens:,} tokens{others}" + (
        f"; log-likelihoods: {likelihoods}" if likelihoods else ""
    )


def _readable(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={option}" for name, option in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)


def _index(index: IndexInfo) -> str:
    return " ".join(filter(None, (index.type, index.recipe, index.metric)))


def _pruned(pruned: PruningInfo) -> str:
    return f"{pruned.keep:.0%} of the {pruned.entries:,} entries of {pruned.source}, by '{pruned.method}'"


def _subsets(subset: SubsetInfo) -> str:
    return f"sentences by {subset.sentence_search}, codes {subset.codes}"


def _state(unfinished: str | None) -> str:
    return "complete" if unfinished is None else f"not complete: stopped at '{unfinished}'; run the same build again"
