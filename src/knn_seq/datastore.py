"""The Datastore: what a user of the Python API builds, and gives to a Translator."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from knn_seq.build import add_index, build_datastore, prepare_subset
from knn_seq.build.pipeline import settings_of
from knn_seq.corpus import CorpusLike, SentencePair, open_corpus, open_text
from knn_seq.decoding import stored_settings
from knn_seq.errors import KnnSeqError, ModelMismatch
from knn_seq.index import SearchIndex, delete_unused, open_index
from knn_seq.index.check import IndexCheck, check_index
from knn_seq.index.stored import indexed_keys
from knn_seq.live import (
    add_pairs,
    compact_datastore,
    delete_pairs,
    find_pairs,
    live_pairs,
    merge_datastores,
)
from knn_seq.live.writing import WAIT_SECONDS
from knn_seq.models import Model, as_model
from knn_seq.prune import prune_datastore
from knn_seq.prune.run import KEEP, METHOD, check_pruning
from knn_seq.runtime.progress import Progress
from knn_seq.settings import BuildSettings, ModelSettings, SearchSettings, override, reject_unknown
from knn_seq.storage import DatastoreFolder, Manifest
from knn_seq.storage.atomic import disk_errors

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from knn_seq.settings import BuildOptions, ModelAndBuildOptions


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
        model: Any,
        corpus: CorpusLike | None = None,
        *,
        source: str | Path | None = None,
        target: str | Path | None = None,
        text: str | Path | None = None,
        columns: Sequence[int | str] | None = None,
        format: str | None = None,
        corpus_options: Mapping[str, Any] | None = None,
        tokenizer: Any = None,
        **options: Unpack[ModelAndBuildOptions],
    ) -> Datastore:
        """Build a datastore; a build that was interrupted resumes, and a finished one is opened.

        Args:
            path: The datastore's folder.
            model: A hub name, a path, BACKEND:NAME such as firefox:pt-en, a loaded Transformers network (with its
                `tokenizer`), or a `Model`.
            corpus: A file with both sides (gzipped or not), a folder of such files, a data-bin folder of fairseq, "-"
                for standard input, or several of these; or pairs of texts, or an opened corpus.
            source: Instead of `corpus`: a text file with the sources ...
            target: ... and one with the targets.
            text: Instead of all these, for a language model: a text file, read in windows; `corpus_options` may have
                their `stride` and `context`.
            columns: Where source and target are in `corpus`, if not in its first two columns; then id, corpus and date.
            format: The format of the files; None: told by their names.
            corpus_options: Options that the reader of the format declares.
            tokenizer: Of a loaded Transformers network.
            **options: Fields of `ModelSettings` and `BuildSettings`.
        """
        given: Mapping[str, Any] = options
        reject_unknown(given, ModelSettings, BuildSettings)
        settings = override(BuildSettings(), given)
        if text is not None:
            opened = open_text(text, corpus_options, corpus, source, target)
        else:
            opened = open_corpus(corpus, source, target, columns, format, corpus_options)
        told = override(ModelSettings(""), opened.model_options())
        loaded = as_model(model, override(told, given), tokenizer)
        build_datastore(path, loaded, opened, settings)
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
        return stored_settings(self)

    def load_model(self, model: str | None = None, **settings: Any) -> Model:
        """The model that the keys were made with.

        Args:
            model: Where it is, if it is no longer where it was.
            **settings: Fields of `ModelSettings`, such as the device.
        """
        wanted = override(self.model_settings, settings)
        loaded = as_model(model or wanted.name, wanted)
        self.require_fitting(loaded)
        return loaded

    def require_fitting(self, model: Model) -> None:
        """Raise a `ModelMismatch` if the model is not the one that the keys were made with."""
        info = self.manifest.model
        if (info.fingerprint, info.vocabulary) != (model.fingerprint.weights, model.fingerprint.vocabulary):
            same_vocabulary = info.vocabulary == model.fingerprint.vocabulary
            raise ModelMismatch(
                f"{self.path} was made with the model {info.spec} ({info.architecture}), which {model.settings.name} "
                f"is not: their {'weights' if same_vocabulary else 'vocabularies'} differ."
            )
        if model.settings.dtype != info.dtype:
            log.warning(
                "%s has keys computed in %s, and the model runs in %s: its queries lie a little off them.",
                self.path,
                info.dtype,
                model.settings.dtype,
            )
        for name in ("key", "source_lang", "target_lang", "prompt"):
            stored, given = (getattr(settings, name) for settings in (self.model_settings, model.settings))
            if None not in (stored, given) and stored != given:
                raise ModelMismatch(f"{self.path} was made with the {name} {stored}, but the model has {given}.")

    def open_index(self, name: str | None = None) -> SearchIndex:
        """One of the datastore's indexes; None: its default one."""
        return open_index(self, name)

    def add_index(
        self, recipe: str = "auto", name: str | None = None, as_default: bool = False, **options: Unpack[BuildOptions]
    ) -> str:
        """Build another index of the same keys, beside those that are there.

        Args:
            recipe: "auto", a faiss factory string, or NAME or NAME:RECIPE of another implementation.
            name: What the index is called; None: as its recipe.  One of the same name is replaced when the new one is
                finished.
            as_default: Let translations use it from now on.
            **options: Fields of `BuildSettings`: the distance metric, the memory limit, the engine, index options.

        Returns:
            The name.
        """
        given: Mapping[str, Any] = {"distance_metric": self.manifest.build.distance_metric, **options}
        settings = replace(override(BuildSettings(), given), index_recipe=recipe)
        name = add_index(self.path, settings, name, as_default)
        self.reload()
        return name

    def remove_index(self, name: str) -> None:
        """Delete an index, except for the default one."""
        with disk_errors(self.path), self.lock():
            manifest = self._manifest_with(name)
            delete_unused(self)
            if name == manifest.default_index:
                raise KnnSeqError(f"'{name}' is the default index of {self.path}: make another one the default first.")
            del manifest.indexes[name]
            self.save(manifest)  # before its files: an index that is named is complete
            delete_unused(self, f"index/{name}")

    def set_default_index(self, name: str) -> None:
        """Let translations use the index of that name from now on."""
        with self.lock():
            manifest = self._manifest_with(name)
            manifest.default_index = name
            self.save(manifest)

    def check_index(
        self,
        name: str | None = None,
        k: int = 64,
        queries: int = 256,
        index_options: Mapping[str, Any] | None = None,
    ) -> IndexCheck:
        """Recall and speed of an index on a random sample of the datastore's own keys.

        Args:
            name: The index; None: the default one.
            k: Neighbours of a query.
            queries: How many keys are asked for.
            index_options: Options of the searches.
        """
        index = self.open_index(name)
        keys = indexed_keys(self, name or str(self.manifest.default_index))
        with Progress("exact search", len(keys), "key") as progress:
            return check_index(index, keys, k, queries, on_progress=progress.update, options=index_options)

    def prepare_subset(
        self,
        sentence_search: str = "encoder",
        sentence_index_recipe: str = "auto",
        codes: str = "auto",
        model: Model | str | None = None,
    ) -> None:
        """Prepare the datastore for subset search, or resume that.

        Args:
            sentence_search: What finds similar sentences: encoder, bm25, tfidf, transformers:NAME ...
            sentence_index_recipe: Of sentence vectors.
            codes: Of keys, such as "OPQ64,PQ64".
            model: The one that the keys were made with; None: it is loaded.
        """
        loaded = model if isinstance(model, Model) else self.load_model(model)
        self.require_fitting(loaded)
        settings = BuildSettings(
            sentence_search=sentence_search, sentence_index_recipe=sentence_index_recipe, codes=codes
        )
        prepare_subset(self.path, loaded, settings)
        self.reload()

    def add(
        self,
        corpus: CorpusLike | None = None,
        model: Model | str | None = None,
        *,
        source: str | Path | None = None,
        target: str | Path | None = None,
        columns: Sequence[int | str] | None = None,
        format: str | None = None,
        corpus_options: Mapping[str, Any] | None = None,
        update: bool = False,
        wait: float = WAIT_SECONDS,
        **options: Unpack[ModelAndBuildOptions],
    ) -> list[str]:
        """Add sentence pairs, or resume that; translators that run, in any process, use them from their next batch.

        Args:
            corpus: A file with both sides, pairs of texts, `SentencePair`s, or an opened corpus.
            model: The one that the keys were made with; None: it is loaded.
            source: Instead of `corpus`: a text file with the sources ...
            target: ... and one with the targets.
            columns: Where source and target are in `corpus`.
            format: The format of the files; None: told by their names.
            corpus_options: Options that the reader of the format declares.
            update: See `update`.
            wait: Seconds to wait for another writer.
            **options: Fields of `ModelSettings`, to load the model, and of `BuildSettings`: engine, workers, strict.

        Returns:
            The ids of the added pairs.
        """
        given: Mapping[str, Any] = options
        reject_unknown(given, ModelSettings, BuildSettings)
        opened = open_corpus(corpus, source, target, columns, format, corpus_options)
        named = {name: value for name, value in given.items() if name in ModelSettings.__dataclass_fields__}
        loaded = model if isinstance(model, Model) else self.load_model(model, **named)
        self.require_fitting(loaded)
        settings = override(BuildSettings(), given)
        if not opened.reader.paths:  # a sentence with a rare word is not text of another language
            settings = replace(settings, allow_unknown=True)
        ids = add_pairs(self.path, loaded, opened, settings, update, wait)
        self.reload()
        return ids

    def update(self, corpus: CorpusLike | None = None, model: Model | str | None = None, **options: Any) -> list[str]:
        """Add sentence pairs that take the place of others in one step.

        A pair replaces the one with the same id or, if there is none, those with the same source, whose id it keeps.
        Arguments and result are those of `add`.
        """
        return self.add(corpus, model, **{**options, "update": True})

    def delete(
        self,
        ids: Collection[str] = (),
        corpus: str | None = None,
        source: str | None = None,
        wait: float = WAIT_SECONDS,
    ) -> list[str]:
        """Delete sentence pairs: from the next batch on, their entries are not found any more.

        Args:
            ids: Those with these ids,
            corpus: those that came from the corpus of that name,
            source: and those with exactly this source.
            wait: Seconds to wait for another writer.

        Returns:
            The ids of the deleted pairs.
        """
        gone = delete_pairs(self.path, ids, corpus, source, wait)
        self.reload()
        return gone

    def find(self, text: str, limit: int | None = 10, corpus: str | None = None) -> list[SentencePair]:
        """The sentence pairs whose source or target shares words with a text, best first.

        Args:
            text: The words.
            limit: How many at most; None: all.
            corpus: Only those that came from the corpus of that name.
        """
        return find_pairs(self.snapshot(), text, limit, corpus)

    def live_pairs(self, corpus: str | None = None) -> Iterator[SentencePair]:
        """All sentence pairs that are not deleted, with their ids, corpora and dates.

        Args:
            corpus: Only those that came from the corpus of that name.
        """
        return live_pairs(self.snapshot(), corpus)

    def compact(self, wait: float = WAIT_SECONDS, **options: Unpack[BuildOptions]) -> bool:
        """Fold all segments into one, without what was deleted, and build its indexes anew, or resume that.

        Args:
            wait: Seconds to wait for another writer.
            **options: Fields of `BuildSettings`: the engine, and the memory that building indexes may take.

        Returns:
            Whether there was anything to do.
        """
        given: Mapping[str, Any] = options
        done = compact_datastore(self.path, override(settings_of(self.manifest), given), wait)
        self.reload()
        return done

    @classmethod
    def merge(
        cls,
        first: DatastoreFolder | str | Path,
        second: DatastoreFolder | str | Path,
        output: str | Path,
        **options: Unpack[BuildOptions],
    ) -> Datastore:
        """Make one datastore of two that were made with the same model; their keys are not computed again.

        Args:
            first: Whose settings, combiners, indexes and preparation for subset search the new one has.
            second: The other one.
            output: The folder of the new one.
            **options: Fields of `BuildSettings`: the engine, and the memory that building indexes may take.
        """
        stores = [each if isinstance(each, DatastoreFolder) else Datastore(each) for each in (first, second)]
        given: Mapping[str, Any] = options
        merge_datastores(stores, Path(output), override(settings_of(stores[0].manifest), given))
        return cls(output)

    def prune(
        self,
        output: str | Path,
        method: str = METHOD,
        keep: float = KEEP,
        method_options: Mapping[str, Any] | None = None,
        model: Model | str | None = None,
        **model_settings: Any,
    ) -> Datastore:
        """Make a smaller datastore of some of the entries, or resume that; this one stays as it is.

        Args:
            output: The folder of the smaller one.
            method: Decides which entries stay: known, merge, ngram, or one of an installed package.
            keep: The share of the entries that stays.
            method_options: Options that the method declares.
            model: The one that the keys were made with; None: it is loaded.
            **model_settings: Fields of `ModelSettings` to load it with, such as the device.
        """
        check_pruning(self, output, method, keep, method_options)
        loaded = model if isinstance(model, Model) else self.load_model(model, **model_settings)
        self.require_fitting(loaded)
        prune_datastore(self, output, loaded, method, keep, method_options)
        return Datastore(output)

    def _manifest_with(self, index: str) -> Manifest:
        """The manifest as it is now, which has an index of that name."""
        self.reload()
        self.index_folder(index)
        return self.manifest
