"""Where a datastore keeps its glossary: in a file that its manifest names, and that never changes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, fields
from typing import Any

from knn_seq.errors import DamagedFile, InvalidSetting
from knn_seq.glossary.glossary import Glossary
from knn_seq.glossary.term import Term
from knn_seq.storage import DatastoreFolder, Manifest
from knn_seq.storage.atomic import disk_errors, read_json, write_json
from knn_seq.storage.manifest import GlossaryInfo

_FORMS = ("source_forms", "target_forms", "forbidden")


def stored_glossary(store: DatastoreFolder) -> Glossary | None:
    """The datastore's own; None: it has none."""
    return store.open_named(lambda: _read(store))


def keep_glossary(store: DatastoreFolder, glossary: Glossary | None) -> None:
    """Let a glossary be the datastore's own in the place of the one that it has; None: it has none from now on."""
    with disk_errors(store.path), store.lock():
        manifest = Manifest.load(store.path)
        manifest.glossary = None
        if glossary:
            data = {
                "source_lang": glossary.source_lang,
                "target_lang": glossary.target_lang,
                "terms": [_with_value(term) for term in glossary],
            }
            digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:12]
            manifest.glossary = GlossaryInfo(f"glossary-{digest}.json", len(glossary))
            write_json(store.path / manifest.glossary.file, data)
        store.save(manifest)  # before the old file goes: one that is named is complete
        for path in store.path.glob("glossary-*"):
            if manifest.glossary is None or path.name != manifest.glossary.file:
                path.unlink()


def _read(store: DatastoreFolder) -> Glossary | None:
    info = store.manifest.glossary
    if info is None:
        return None
    path = store.path / info.file
    try:
        data = read_json(path)
    except FileNotFoundError as error:
        raise DamagedFile(f"The glossary {path} is missing: import it again (`knn-seq glossary`).") from error
    try:
        languages = [data[name] for name in ("source_lang", "target_lang")]
        if not all(language is None or isinstance(language, str) for language in languages):
            raise TypeError("a language is no text")
        return Glossary([_term(one) for one in data["terms"]], *languages)
    except (KeyError, TypeError, ValueError, AttributeError, InvalidSetting) as error:
        raise DamagedFile(f"{path} is damaged ({error}): import the glossary again (`knn-seq glossary`).") from error


def _with_value(term: Term) -> dict[str, Any]:
    return {name: value for name, value in asdict(term).items() if value or name in ("source", "target")}


def _term(data: dict[str, Any]) -> Term:
    known = {entry.name for entry in fields(Term)}
    given: dict[str, Any] = {
        name: tuple(value) if name in _FORMS else value for name, value in data.items() if name in known
    }
    texts = [given["source"], given["target"], *(form for name in _FORMS for form in given.get(name, ()))]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("a term is no text")
    return Term(**given)
