"""Text to datastore, step by step.  Each step is done once; a build that was killed resumes where it was."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from dataclasses import asdict, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from knn_seq.build.engine import Engine, open_engine
from knn_seq.build.ids import id_prefix, make_ids_unique
from knn_seq.build.index import DEFAULT_INDEX, store_index
from knn_seq.build.keys import store_keys
from knn_seq.build.shortlist import require_encoder, store_shortlist
from knn_seq.build.shots import with_shots
from knn_seq.build.subset import check_subset_settings, store_subset
from knn_seq.build.text import PROGRESS_NAME, Naming, store_text
from knn_seq.combine import COMBINERS, Combiner
from knn_seq.combine.trained import TrainedCombiner
from knn_seq.corpus import Corpus
from knn_seq.decoding import KnnDecoder, settings_name
from knn_seq.decoding.stored_shortlist import attach_shortlist, lacks_shortlist, shortlist_path
from knn_seq.errors import DamagedFile, InvalidSetting, KnnSeqError, UnknownTokens
from knn_seq.index import delete_unused
from knn_seq.likelihood import calibrate, most_likely
from knn_seq.models import Model
from knn_seq.models.base import absolute_name
from knn_seq.models.encoder_decoder import EncoderDecoderModel
from knn_seq.runtime.clock import now
from knn_seq.runtime.wording import count
from knn_seq.settings import BuildSettings, SearchSettings, with_value
from knn_seq.storage import DatastoreFolder, KeyInfo, Manifest, ModelInfo
from knn_seq.storage.atomic import disk_errors, partial_of
from knn_seq.storage.manifest import (
    MANIFEST_NAME,
    STEPS,
    BuildInfo,
    CorpusInfo,
    SegmentInfo,
    StepInfo,
    StoredSettings,
)
from knn_seq.train import examples_for, train
from knn_seq.train.examples import Examples
from knn_seq.train.general import general_sentences
from knn_seq.train.store import add_combiner, drop_unlisted

log = logging.getLogger(__name__)

KEY_DTYPES = ("float16", "float32")
ENGINE_SETTINGS = ("engine", "workers", "ray_address", "gpus_per_worker")  # the datastore is the same whoever built it


def build_datastore(path: str | Path, model: Model, corpus: Corpus, settings: BuildSettings | None = None) -> bool:
    """Build a datastore, or resume a build that was interrupted.

    Args:
        path: Its folder.
        model: Computes the keys.
        corpus: The sentence pairs.
        settings: How.

    Returns:
        Whether there was anything to do.
    """
    settings = settings or BuildSettings()
    if settings.key_dtype not in KEY_DTYPES:
        raise InvalidSetting(f"Keys cannot be stored as '{settings.key_dtype}': choose from {', '.join(KEY_DTYPES)}.")
    if settings.sentence_search is not None:
        check_subset_settings(model, settings, settings.distance_metric)
    if lacks_shortlist(model):
        require_encoder(model)
    corpus = with_shots(corpus, model, settings)
    corpus.bind(model)
    folder = DatastoreFolder(path)
    with disk_errors(folder.path), folder.lock():
        manifest = _open_manifest(folder, model, corpus, settings)
        settings = replace(
            settings,
            # Shards and batches are those of the build that is resumed: its progress is counted in them.
            batch_tokens=manifest.build.batch_tokens,
            shard_tokens=manifest.build.shard_tokens,
            max_length=corpus.longest_side() or min(settings.max_length, model.max_length or settings.max_length),
        )
        with open_engine(settings, model) as engine:
            return _Builder(folder, manifest, model, corpus, settings, engine).run()


def finish_datastore(folder: DatastoreFolder, model: Model, settings: BuildSettings) -> bool:
    """Do the steps of a build that are left, for a caller that has written text and keys and holds the lock.

    Args:
        folder: The datastore.
        model: The one that the keys were made with.
        settings: How.

    Returns:
        Whether there was anything to do.
    """
    with open_engine(settings, model) as engine:
        return _Builder(folder, folder.manifest, model, None, settings, engine).run()


def settings_of(manifest: Manifest) -> BuildSettings:
    """The settings that a datastore was built with, except for those of the engine."""
    return BuildSettings(
        **{entry.name: getattr(manifest.build, entry.name) for entry in fields(BuildInfo) if entry.name != "extra"}
    )


class _Builder:
    def __init__(
        self,
        folder: DatastoreFolder,
        manifest: Manifest,
        model: Model,
        corpus: Corpus | None,
        settings: BuildSettings,
        engine: Engine,
    ) -> None:
        self.folder, self.manifest, self.model, self.corpus = folder, manifest, model, corpus
        self.settings, self.engine = settings, engine

    def run(self) -> bool:
        delete_unused(self.folder)
        actions = {
            "text": self._text,
            "keys": self._keys,
            "index": self._index,
            "defaults": self._defaults,
            "combiner": self._combiner,
        }
        unfinished = [step for step in STEPS if self.manifest.steps[step].state != "done"]
        if {"keys", "index"} & set(unfinished):
            self.engine.start(load_model="keys" in unfinished)
        for step in unfinished:
            if step in ("defaults", "combiner"):  # they measure what translating will choose from
                self._shortlist()
            actions[step]()
            self.manifest.steps[step] = StepInfo("done")
            self.folder.save(self.manifest)
            delete_unused(self.folder)
        (self.folder.base.path / PROGRESS_NAME).unlink(missing_ok=True)
        drop_unlisted(self.folder)
        anything_done = any([self._shortlist(), self._subset(), unfinished])
        if not anything_done:
            log.info("%s is complete already; nothing was done.", self.folder.path)
        return anything_done

    def _text(self) -> None:
        assert self.corpus is not None
        settings = replace(self.settings, workers=self.engine.tokenizer_processes)
        [segment] = self.manifest.segments.values()
        naming = Naming(id_prefix(self.manifest.corpus.identity), self.corpus.describe(), segment.date)
        try:
            counts = store_text(self.folder.base, self.corpus, self.model.tokenizer, settings, naming)
        except (DamagedFile, UnknownTokens):  # leave no datastore behind
            _remove_empty(self.folder)
            raise
        self.manifest.counts = counts
        segment.sentences, segment.tokens = counts.sentences, counts.tokens
        left_out = sum(counts.rejected.values())
        if left_out:
            reasons = ", ".join(f"{number:,} {reason}" for reason, number in counts.rejected.items())
            log.info("Left out: %s (%s).", count(left_out, "sentence pair"), reasons)

    def _keys(self) -> None:
        make_ids_unique(self.folder.base)
        identity = {"model": self.model.fingerprint.weights, "key": self.manifest.keys.kind}
        store_keys(self.folder.base, self.model, self.settings, identity, self.engine)

    def _index(self) -> None:
        self.manifest.indexes[DEFAULT_INDEX] = store_index(self.folder, self.settings, engine=self.engine)
        self.manifest.default_index = DEFAULT_INDEX

    def _defaults(self) -> None:
        untrained = "fixed" if issubclass(self._combiner_kind, TrainedCombiner) else self.settings.combiner
        search = SearchSettings(combiner=untrained)
        stored = with_value(search)
        if self._trains:
            own = self._examples.train[:1]
            stored |= most_likely(own[0].predictions, COMBINERS.get("fixed")(), "fixed") if own else {}
        elif self.settings.calibration_sentences:
            stored |= calibrate(KnnDecoder(self.folder, self.model), search, self.settings.calibration_sentences)
        self.manifest.defaults = cast(StoredSettings, stored)
        self.manifest.tuned[settings_name(search)] = self.manifest.defaults

    def _combiner(self) -> None:
        if not self._trains or not self._examples.usable:
            return
        trained = train(self._examples, SearchSettings(), self.settings.combiner)
        add_combiner(self.folder, self.manifest, trained, as_default=trained.better_than_fixed)

    @property
    def _combiner_kind(self) -> type[Combiner]:
        return COMBINERS.get(self.settings.combiner)

    @property
    def _trains(self) -> bool:
        return issubclass(self._combiner_kind, TrainedCombiner) and self.settings.calibration_sentences > 0

    @cached_property
    def _examples(self) -> Examples:
        """One search for two steps; a build that resumes between them makes it again."""
        return examples_for(
            KnnDecoder(self.folder, self.model),
            SearchSettings(),
            general=general_sentences(self.model, self.settings.general),
            sentences=self.settings.calibration_sentences,
        )

    def _shortlist(self) -> bool:
        """Let the model have one, if it is to; returns whether it was learned now."""
        if not lacks_shortlist(self.model) or not isinstance(self.model, EncoderDecoderModel):
            return False
        missing = not shortlist_path(self.folder).exists()
        if missing:
            store_shortlist(self.folder, self.model)
        attach_shortlist(self.folder, self.model)
        return missing

    def _subset(self) -> bool:
        if self.settings.sentence_search is None:
            return False
        return store_subset(self.folder, self.model, self.settings, self.engine)


def _open_manifest(folder: DatastoreFolder, model: Model, corpus: Corpus, settings: BuildSettings) -> Manifest:
    """The manifest of the build to resume, if it is the same one, or of a new one."""
    wanted = _new_manifest(model, corpus, settings)
    if folder.exists():
        stored = folder.manifest
        _require_same(folder, stored, wanted)
        return stored
    ours = {".lock", partial_of(folder.path / MANIFEST_NAME).name}  # of a build that was killed at its very beginning
    if set(os.listdir(folder.path)) - ours:
        raise KnnSeqError(f"{folder.path} is not empty and is no datastore: choose another folder.")
    folder.save(wanted)
    return wanted


def _new_manifest(model: Model, corpus: Corpus, settings: BuildSettings) -> Manifest:
    chosen = model.settings
    return Manifest(
        model=ModelInfo(
            spec=absolute_name(chosen.name),
            fingerprint=model.fingerprint.weights,
            vocabulary=model.fingerprint.vocabulary,
            architecture=model.architecture,
            source_lang=chosen.source_lang,
            target_lang=chosen.target_lang,
            prompt=chosen.prompt,
            shown_prompt=model.tokenizer.prompt,
            dtype=chosen.dtype or "float32",
            data=None if chosen.data is None else os.path.abspath(chosen.data),
            translates_from=model.source_language,
            translates_to=model.target_language,
        ),
        keys=KeyInfo(kind=chosen.key, dimension=model.dimension, dtype=settings.key_dtype),
        corpus=CorpusInfo(identity=corpus.identity(), description=corpus.describe()),
        build=_build_info(settings),
        segments={"1": SegmentInfo(date=now())},
        next_segment=2,
        steps={step: StepInfo("waiting") for step in STEPS},
    )


def _remove_empty(folder: DatastoreFolder) -> None:
    """Delete the manifest of a datastore whose only segment is gone, and the folder that it was in."""
    with suppress(OSError):
        folder.base.path.parent.rmdir()
    (folder.path / MANIFEST_NAME).unlink(missing_ok=True)


def _build_info(settings: BuildSettings) -> BuildInfo:
    try:
        return BuildInfo.from_dict({n: value for n, value in asdict(settings).items() if n not in ENGINE_SETTINGS})
    except ValueError as error:
        raise InvalidSetting(f"The datastore cannot be built: {error}.") from error


def _require_same(folder: DatastoreFolder, stored: Manifest, wanted: Manifest) -> None:
    before, now = _identity(stored), _identity(wanted)
    for name, value in now.items():
        if before[name] != value:
            raise KnnSeqError(
                f"{folder.path} already holds a datastore with another {name} "
                f"(made from {stored.corpus.description} with {stored.model.spec}): choose another folder."
            )


def _identity(manifest: Manifest) -> dict[str, Any]:
    """What must be the same for a build to be resumed."""
    model, build = manifest.model, manifest.build
    return {
        "model": model.fingerprint,
        "vocabulary": model.vocabulary,
        "source language": model.source_lang,
        "target language": model.target_lang,
        "prompt": model.prompt,
        "key": (manifest.keys.kind, manifest.keys.dimension),
        "model dtype": model.dtype,
        "key dtype": manifest.keys.dtype,
        "corpus": manifest.corpus.identity,
        "maximum length": build.max_length,
        "number of examples": (build.shots, build.shots_by if build.shots else None),
        "index": build.index_recipe,
        "distance metric": build.distance_metric,
        "pruning": manifest.pruned,
    }
