"""knn-seq glossary: the terms that are binding in a datastore's translations."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from knn_seq.errors import DamagedFile, InvalidSetting

if TYPE_CHECKING:
    from knn_seq.glossary import Glossary, Term
    from knn_seq.storage import DatastoreFolder

HELP = "import, list, remove or export the terms that are binding"
EXAMPLE = "knn-seq glossary store/ import terms.tsv"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("store", help="the datastore's folder")
    parser.add_argument(
        "action",
        choices=("import", "list", "remove", "export"),
        help="add the terms of a file; show them; remove a term; write them all as TSV",
    )
    parser.add_argument(
        "value",
        nargs="?",
        metavar="FILE|TERM",
        help="import: TSV or TBX; remove: the term; export: a file (- or none: standard output)",
    )
    parser.add_argument("--source-lang", help="of the terms, such as pt; needed for TBX if the model does not tell")
    parser.add_argument("--target-lang", help="of their translations, such as en")


def run(arguments: argparse.Namespace) -> None:
    """Change or show the glossary."""
    from knn_seq.glossary import Glossary, keep_glossary
    from knn_seq.storage import DatastoreFolder

    store = DatastoreFolder(arguments.store)
    kept = _kept(store, arguments.action)
    value: str | None = arguments.value
    if arguments.action in ("import", "remove") and value is None:
        raise InvalidSetting(
            f"Say what to {arguments.action}: {'a file' if arguments.action == 'import' else 'a term'}."
        )
    if arguments.action == "import":
        info = store.manifest.model
        languages = _languages(info.spec)
        source = arguments.source_lang or info.source_lang or languages[0]
        target = arguments.target_lang or info.target_lang or languages[1]
        read = Glossary.read(str(value), source, target)
        keep_glossary(store, kept.merged(read))
    elif arguments.action == "remove":
        keep_glossary(store, kept.without(str(value)))
    elif arguments.action == "list":
        for term in kept:
            print(described(term))
    else:
        _export(kept, value)


def _kept(store: DatastoreFolder, action: str) -> Glossary:
    from knn_seq.glossary import Glossary, stored_glossary

    try:
        return stored_glossary(store) or Glossary()
    except DamagedFile:
        if action != "import":  # which is what the message says to do
            raise
        return Glossary()


def described(term: Term) -> str:
    """A term on one line."""
    notes = [
        term.part_of_speech or "",
        "as it is written" if term.case_sensitive else "",
        f"also {', '.join(term.target_forms)}" if term.target_forms else "",
        f"never {', '.join(term.forbidden)}" if term.forbidden else "",
    ]
    said = "; ".join(filter(None, notes))
    return f"{term.source} → {term.target or '?'}" + (f" ({said})" if said else "")


def _export(glossary: Glossary, name: str | None) -> None:
    from knn_seq.glossary.tsv import tsv_lines
    from knn_seq.storage.atomic import disk_errors, partial_of, publish

    text = "".join(f"{line}\n" for line in tsv_lines(glossary))
    if name in (None, "-"):
        sys.stdout.write(text)
        return
    path = Path(str(name))
    with disk_errors(path):
        try:
            partial_of(path).write_text(text, encoding="utf-8")
            publish(partial_of(path), path)
        except OSError as error:
            raise InvalidSetting(f"{path} cannot be written: {error.strerror}.") from error


def _languages(model: str) -> tuple[str | None, str | None]:
    """What a Firefox model's name says: "pt" and "en" of firefox:pt-en."""
    kind, _, pair = model.partition(":")
    source, _, target = pair.partition("-")
    return (source, target) if kind == "firefox" and source.isalpha() and target.isalpha() else (None, None)
