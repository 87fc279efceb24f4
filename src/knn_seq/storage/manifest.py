"""`datastore.json`: what a datastore says of itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from knn_seq import __version__
from knn_seq.errors import DamagedFile, InvalidSetting, KnnSeqError, NotFound
from knn_seq.settings import BuildSettings, DistanceMetric, SearchOptions, SearchSettings, override
from knn_seq.storage.atomic import read_json, write_json
from knn_seq.storage.record import Record, require_plain, shown
from knn_seq.storage.replacement import SEGMENTS, is_part_folder

MANIFEST_NAME = "datastore.json"
FORMAT_VERSION = 3
STEPS = ("text", "keys", "index", "defaults", "combiner")  # of a build, in their order
LONGEST_NAME = 200  # bytes of the name of an index, a folder: file systems allow 255, and its build's name is longer
LONGEST_VERSION = 10  # bytes behind that name, such as .2


@dataclass
class ModelInfo(Record):
    """The model whose hidden states the keys are."""

    spec: str  # what the user gave: a hub name, a path, firefox:pt-en
    fingerprint: str  # of the weights
    vocabulary: str  # fingerprint of the vocabulary
    architecture: str = ""
    source_lang: str | None = None
    target_lang: str | None = None
    prompt: str | None = None
    shown_prompt: str | None = None  # what the model reads, whoever chose it: the user, its tokenizer or a default
    dtype: str = "float32"  # that the keys were computed in
    data: str | None = None  # a fairseq model's folder of dictionaries
    translates_from: str | None = None  # a language, also where the model knows it and nobody gave it
    translates_to: str | None = None


@dataclass
class KeyInfo(Record):
    """What the keys are."""

    kind: str  # "ffn_in"
    dimension: int
    dtype: str  # as it is on the disk


@dataclass
class CorpusInfo(Record):
    """The text that the datastore was built from."""

    identity: dict[str, Any]
    description: str = ""


@dataclass
class BuildInfo(Record):
    """The `BuildSettings` of a datastore, except for those of the engine: it is the same whoever built it."""

    batch_tokens: int
    shard_tokens: int | None
    max_length: int
    index_recipe: str
    distance_metric: DistanceMetric
    index_options: dict[str, Any] = field(default_factory=dict)
    key_dtype: str = BuildSettings.key_dtype
    strict: bool = BuildSettings.strict
    allow_unknown: bool = BuildSettings.allow_unknown
    sentence_search: str | None = BuildSettings.sentence_search
    sentence_index_recipe: str = BuildSettings.sentence_index_recipe
    codes: str = BuildSettings.codes
    memory_limit: str | int | None = BuildSettings.memory_limit
    checkpoint_seconds: float = BuildSettings.checkpoint_seconds
    calibration_sentences: int = BuildSettings.calibration_sentences
    combiner: str = BuildSettings.combiner
    general: str | None = BuildSettings.general
    auto_compact: float = BuildSettings.auto_compact
    shots: int = BuildSettings.shots
    shots_by: str = BuildSettings.shots_by

    def check(self, at: str) -> None:
        """See `Record.check`."""
        with _named_settings(at):
            BuildSettings(**{entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name != "extra"})


@dataclass
class Counts(Record):
    """How much there is of everything."""

    sentences: int = 0
    tokens: int = 0
    rejected: dict[str, int] = field(default_factory=dict)  # bad lines by reason


@dataclass
class SegmentInfo(Record):
    """Sentence pairs that were added together, or folded into one segment later."""

    sentences: int = 0
    tokens: int = 0  # entries
    date: str = ""  # when it was made
    pruned: bool = False  # not every token of every target is an entry
    indexes: dict[str, str] = field(default_factory=dict)  # of its own keys: their types by distance metric


@dataclass
class DeletionInfo(Record):
    """The sentence pairs that are deleted and still on the disk."""

    file: str  # in the folder of deletions
    sentences: int = 0
    tokens: int = 0  # entries

    def check(self, at: str) -> None:
        """See `Record.check`."""
        if not is_file_name(self.file):
            raise ValueError(f"'{at}.file' is {shown(self.file)}, which cannot be the name of a file")


@dataclass
class IndexInfo(Record):
    """An index of the keys of the first segment."""

    type: str  # its name in the registry
    metric: DistanceMetric
    recipe: str | None = None
    dimension: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    entries: int | None = None
    memory: int | None = None  # bytes
    removed: bool = False  # whether entries were taken out
    folder: str = field(kw_only=True)  # in the datastore's

    def check(self, at: str) -> None:
        """See `Record.check`."""
        parent, _, name = self.folder.partition("/")
        if parent != "index" or not is_file_name(name, LONGEST_NAME + LONGEST_VERSION):
            raise ValueError(f"'{at}.folder' is {shown(self.folder)}, not a folder in index/")


@dataclass
class SentenceIndexInfo(Record):
    """What finds sentences for subset search."""

    type: str  # of an index of sentence vectors, or "lexical"
    folder: str  # in the datastore's

    def check(self, at: str) -> None:
        """See `Record.check`."""
        _check_part(self.folder, "sentences", f"{at}.folder")


@dataclass
class SubsetInfo(Record):
    """What subset search was prepared with."""

    sentence_search: str
    requested_sentence_index: str
    requested_codes: str
    codes: str
    metric: DistanceMetric
    sentence_index: SentenceIndexInfo
    codes_folder: str | None = None  # in the datastore's; None: keys are compared as they are
    vectors_folder: str | None = None  # in the datastore's; None: sentences are found by their words

    def check(self, at: str) -> None:
        """See `Record.check`."""
        for part in ("codes", "vectors"):
            folder = getattr(self, f"{part}_folder")
            if folder is not None:
                _check_part(folder, part, f"{at}.{part}_folder")


@dataclass
class CombinerInfo(Record):
    """A combiner that was trained, and what with."""

    type: str  # its name in the registry
    file: str  # its weights, in the folder of combiners
    k: int  # the most neighbours it can weigh
    metric: DistanceMetric  # of the distances that it was trained with
    tokens: int = 0  # that it was trained on
    general_sentences: int = 0  # of other domains among them
    seed: int = 0
    log_likelihoods: dict[str, float] = field(default_factory=dict)  # of a held-out token: the model's, and others'
    skip_file: str | None = None  # the weights of what skips searches, beside its own
    skip_saves: float = 0.0  # the share of searches
    changes: int = 0  # the manifest's, when it was trained

    def check(self, at: str) -> None:
        """See `Record.check`."""
        for name in ("file", "skip_file"):
            file = getattr(self, name)
            if file is not None and not is_file_name(file):
                raise ValueError(f"'{at}.{name}' is {shown(file)}, which cannot be the name of a file")


@dataclass
class PruningInfo(Record):
    """The larger datastore that a pruned one was made from, and how."""

    source: str  # its path
    fingerprint: str  # of its entries
    entries: int  # of it
    method: str
    keep: float  # the share of its entries that stayed
    options: dict[str, Any] = field(default_factory=dict)  # of the method


@dataclass
class GlossaryInfo(Record):
    """The terms that are binding."""

    file: str  # in the datastore's folder
    terms: int = 0

    def check(self, at: str) -> None:
        """See `Record.check`."""
        if not is_file_name(self.file) or not self.file.startswith("glossary-"):
            raise ValueError(f"'{at}.file' is {shown(self.file)}, not the name of a glossary's file")


@dataclass
class StepInfo(Record):
    """How far a step of the build is."""

    state: Literal["waiting", "running", "done"]


class StoredSettings(SearchOptions, total=False):
    """Search settings that a datastore carries, those that have a value, and what was measured with them."""

    median_distance: float


@dataclass
class Manifest(Record):
    """A datastore's description: everything that translating with it needs to know."""

    model: ModelInfo
    keys: KeyInfo
    corpus: CorpusInfo
    build: BuildInfo
    counts: Counts = field(default_factory=Counts)
    segments: dict[str, SegmentInfo] = field(default_factory=dict)  # by the names of their folders, in their order
    next_segment: int = 1  # the name of the next one: no name is used twice
    deleted: DeletionInfo | None = None  # None: nothing is
    generation: int = 1  # counts each change of what is in the datastore
    added: int = 0  # sentence pairs, since it was built
    removed: int = 0
    indexes: dict[str, IndexInfo] = field(default_factory=dict)
    default_index: str | None = None
    combiners: dict[str, CombinerInfo] = field(default_factory=dict)  # by what they are for: "full/learned"
    subset: SubsetInfo | None = None  # in the file {}, if it is not prepared for subset search
    defaults: StoredSettings = field(default_factory=StoredSettings)
    tuned: dict[str, StoredSettings] = field(default_factory=dict)  # by what they are for: "subset/fixed"
    pruned: PruningInfo | None = None  # from what; None: it was built from text
    glossary: GlossaryInfo | None = None  # None: no terms are binding
    steps: dict[str, StepInfo] = field(kw_only=True)
    created_with: str = __version__
    format_version: int = FORMAT_VERSION

    @classmethod
    def load(cls, folder: Path) -> Manifest:
        """The manifest of a datastore's folder; a `DamagedFile` names a field that is not as it should be."""
        path = folder / MANIFEST_NAME
        try:
            data = read_json(path)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotFound(
                f"{folder} is not a datastore: it has no {MANIFEST_NAME}; make one with `knn-seq build`."
            ) from error
        except OSError as error:
            raise KnnSeqError(f"{path} cannot be read: {error.strerror}.") from error
        try:
            require_plain(data)
            version = data.get("format_version") if isinstance(data, dict) else None
            if type(version) is int and version > FORMAT_VERSION:
                raise KnnSeqError(
                    f"{folder} was made by a newer knn-seq ({data.get('created_with')}, format {version}): "
                    f"update knn-seq, which is {__version__} here."
                )
            if type(version) is int and version < FORMAT_VERSION:
                raise KnnSeqError(
                    f"{folder} was made by an older knn-seq ({data.get('created_with')}, format {version}), and "
                    f"{__version__} reads format {FORMAT_VERSION}: build it again in another folder."
                )
            return cls.from_dict(data)
        except ValueError as error:
            raise DamagedFile(f"{path} is damaged: {error}.") from error

    @classmethod
    def from_dict(cls, data: Any, at: str = "") -> Manifest:
        """See `Record.from_dict`."""
        not_prepared = isinstance(data, dict) and data.get("subset") == {}
        return super().from_dict({**data, "subset": None} if not_prepared else data, at)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of it."""
        return super().to_dict() | ({} if self.subset else {"subset": {}})

    def save(self, folder: Path) -> None:
        """Replace the manifest of a datastore's folder in one step."""
        write_json(folder / MANIFEST_NAME, self.to_dict())

    def check(self, at: str) -> None:
        """See `Record.check`."""
        for step in STEPS:
            if step not in self.steps:
                raise ValueError(f"'steps.{step}' is missing")
        if not self.segments:
            raise ValueError("'segments' is empty")
        for name in self.segments:
            if not re.fullmatch("[1-9][0-9]{0,14}", name) or int(name) >= self.next_segment:
                raise ValueError(f"'segments' has {name!r}, which cannot be the name of one")
        for name in self.indexes:
            if not is_file_name(name):
                raise ValueError(f"'indexes' has {name!r}, which cannot be the name of a folder")
        has_index = self.steps["index"].state == "done" or self.default_index is not None
        if has_index and self.default_index not in self.indexes:
            known = ", ".join(self.indexes) or "none"
            raise ValueError(f"'default_index' is {shown(self.default_index)}, which is not in 'indexes' ({known})")
        for where, stored in {"defaults": self.defaults, **{f"tuned.{n}": s for n, s in self.tuned.items()}}.items():
            with _named_settings(where):
                override(SearchSettings(), stored)

    def folders(self) -> set[str]:
        """The folders in use that are replaced, in the datastore's."""
        named = {index.folder for index in self.indexes.values()}
        named.update(f"{SEGMENTS}/{name}" for name in self.segments)
        if self.subset:
            parts = (self.subset.codes_folder, self.subset.vectors_folder, self.subset.sentence_index.folder)
            named.update(folder for folder in parts if folder is not None)
        return named

    def combiner_files(self) -> set[str]:
        """The files of trained combiners in use."""
        files = (file for info in self.combiners.values() for file in (info.file, info.skip_file))
        return {file for file in files if file is not None}

    def searched_metric(self, retriever: str, index: str | None) -> DistanceMetric:
        """What the distances are that a retriever finds with an index, or with the default one."""
        if retriever == "subset" and self.subset is not None:
            return self.subset.metric
        found = self.indexes.get(index or self.default_index or "")
        return self.build.distance_metric if found is None else found.metric

    @property
    def changes(self) -> int:
        """Sentence pairs that were added or deleted since the datastore was built."""
        return self.added + self.removed

    @property
    def compacted(self) -> bool:
        """Whether there is one segment, and nothing in it is deleted."""
        return len(self.segments) == 1 and self.deleted is None

    def unfinished_step(self) -> str | None:
        """The first step of the build that is not done; None if all are."""
        return next((step for step in STEPS if self.steps[step].state != "done"), None)


def is_file_name(name: str, longest: int = LONGEST_NAME) -> bool:
    """Whether a file or a folder can be called so: it must lie where it belongs."""
    plain = name.isprintable() and not name.startswith(".") and "/" not in name and "\\" not in name
    return bool(name) and plain and len(name.encode()) <= longest


def _check_part(folder: str, part: str, at: str) -> None:
    if not is_part_folder(folder, part):
        raise ValueError(f"'{at}' is {shown(folder)}, not a folder such as {part}")


@contextmanager
def _named_settings(at: str) -> Iterator[None]:
    """Say where the settings stand that cannot be."""
    try:
        yield
    except InvalidSetting as error:
        sentence = str(error).removesuffix(".")
        raise ValueError(f"in {at!r}, {sentence[0].lower()}{sentence[1:]}") from error
