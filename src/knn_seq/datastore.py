from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from knn_seq.corpus import Corpus, open_corpus
from knn_seq.errors import UserError
from knn_seq.models import Model, load_model
from knn_seq.settings import BuildSettings, ModelSettings, SearchSettings, override, reject_unknown
from knn_seq.storage import DatastoreFolder, Manifest


def tuned_for(settings: SearchSettings) -> str:
    """What tuned settings are kept under: "full/fixed", with "/NAME" behind for an index that is not the default."""
    return "/".join(filter(None, (settings.retriever, settings.combiner, settings.index)))


class Datastore(DatastoreFolder):
    """Keys and values of a parallel corpus, on disk, with an index to search them.

    Args:
        path: The folder of a finished datastore.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        self.require_complete()

    @classmethod
    def build(
        cls,
        path: str | Path,
        model: str | Model,
        corpus: str | Path | Corpus | None = None,
        *,
        source: str | Path | None = None,
        target: str | Path | None = None,
        columns: tuple[int | str, int | str] | None = None,
        quiet: bool = False,
        **settings: Any,
    ) -> Datastore:
        """Build a datastore; a build that was interrupted goes on, and a finished one is opened.

        Args:
            path: The datastore's folder.
            model: A hub name, a path, BACKEND:NAME such as firefox:pt-en, or a loaded model.
            corpus: A TSV or JSON-lines file with both sides (gzipped or not).
            source: Instead of `corpus`: a text file with the sources ...
            target: ... and one with the targets.
            columns: Where source and target are in `corpus`, if not in its first two columns.
            quiet: Show no progress.
            **settings: Any field of `ModelSettings` or `BuildSettings`.
        """
        from knn_seq.build import build_datastore

        reject_unknown(settings, ModelSettings, BuildSettings)
        if isinstance(model, str):
            model = load_model(override(ModelSettings(model), settings))
        if not isinstance(corpus, Corpus):
            corpus = open_corpus(corpus, source=source, target=target, columns=columns)
        build_datastore(path, model, corpus, override(BuildSettings(), settings), quiet)
        return cls(path)

    @property
    def model_settings(self) -> ModelSettings:
        """The settings of the model that the keys were made with."""
        info = self.manifest.model
        return ModelSettings(
            name=info.spec,
            source_lang=info.source_lang,
            target_lang=info.target_lang,
            prompt=info.prompt,
            key=self.manifest.keys.kind,
            dtype=info.dtype,
            data=info.data,
        )

    @property
    def search_settings(self) -> SearchSettings:
        """The datastore's own defaults for searching."""
        return override(SearchSettings(), self.manifest.defaults)

    def settings_for(
        self, retriever: str | None = None, combiner: str | None = None, index: str | None = None
    ) -> SearchSettings:
        """The datastore's own settings for some way of searching: those tuned for it, or else the defaults.

        Args:
            retriever: Its name; None: the default one.
            combiner: Its name; None: the default one.
            index: The name of one of the datastore's indexes; None: its default one.
        """
        settings = override(self.search_settings, {"retriever": retriever, "combiner": combiner, "index": index})
        return override(settings, self.manifest.tuned.get(tuned_for(settings), {}))

    def keep_tuned(self, settings: SearchSettings, as_default: bool) -> None:
        """Store tuned settings where `settings_for` finds them.

        Args:
            settings: The settings.
            as_default: Make them the datastore's defaults, too.
        """
        with self.lock():
            manifest = Manifest.load(self.path)
            chosen = {name: value for name, value in asdict(settings).items() if value is not None}
            manifest.tuned[tuned_for(settings)] = chosen
            if as_default:
                manifest.tuned.setdefault(tuned_for(self.search_settings), manifest.defaults)
                manifest.defaults = chosen
            self.save(manifest)

    def require_fitting(self, model: Model) -> None:
        """Raise a `UserError` if the model is not the one that the keys were made with."""
        info = self.manifest.model
        if (info.fingerprint, info.vocabulary) != (model.fingerprint.weights, model.fingerprint.vocabulary):
            raise UserError(
                f"{self.path} was made with the model {info.spec} ({info.architecture}), "
                f"which {model.settings.name} is not: their {self._difference(model)} differ."
            )

    def _difference(self, model: Model) -> str:
        return "weights" if self.manifest.model.vocabulary == model.fingerprint.vocabulary else "vocabularies"
