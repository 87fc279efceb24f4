"""All settings and their defaults; the command line, the Python API and the datastore's manifest read the same ones.

Each of the settings is a frozen dataclass, and has a dictionary type of the same fields: the keyword arguments that
public functions take.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypedDict, TypeVar, get_args

from knn_seq.errors import InvalidSetting

INDEX_FAILURE = ("error", "base")
SKIP = ("learned",)
SHOTS_BY = ("bm25", "encoder")
CHAT = "chat"  # the prompt that stands for a tokenizer's own chat template
DistanceMetric = Literal["l2", "ip", "cosine"]
DISTANCE_METRICS: tuple[str, ...] = get_args(DistanceMetric)
LARGEST_K = 1 << 16  # neighbours of a query; more would only fill the memory
TEMPERATURES = (1e-9, 1e9)  # beyond them the softmax of float32 distances is no number, or the same for all


@dataclass(frozen=True)
class ModelSettings:
    """Which model, and how it is asked for keys."""

    name: str  # a hub name, a path, or BACKEND:NAME such as firefox:pt-en
    source_lang: str | None = None
    target_lang: str | None = None
    prompt: str | None = None  # decoder-only models: a template with {source}, or "chat" for the tokenizer's own
    key: str = "ffn_in"  # ffn_in, ffn_out, or a module's path (its input; its output with ":output" behind)
    device: str | None = None  # None: CUDA if there is, else the CPU
    dtype: str | None = None  # int8, float32, float16 or bfloat16; None: what the kind of model is best run in
    shortlist: bool = False  # choose only among what each source can become: the model's own list, or the datastore's
    data: str | None = None  # fairseq: the folder of dictionaries, if neither the checkpoint nor its folder has them


class ModelOptions(TypedDict, total=False):
    """The fields of `ModelSettings` as keyword arguments; None leaves a default as it is."""

    source_lang: str | None
    target_lang: str | None
    prompt: str | None
    key: str | None
    device: str | None
    dtype: str | None
    shortlist: bool | None
    data: str | None


@dataclass(frozen=True)
class BuildSettings:
    """How a datastore is made from text."""

    key_dtype: str = "float16"
    batch_tokens: int = 4096  # tokens, padding counted, in one batch of the key computation
    shard_tokens: int | None = None  # target tokens of a shard, the unit that workers share; None: chosen by size
    max_length: int = 512  # tokens of one side; longer pairs are left out
    strict: bool = False  # stop at the first bad sentence pair instead of counting it
    allow_unknown: bool = False  # build even if much of the text is unknown to the model's vocabulary
    engine: str = "local"  # who does the work: local, ray, or one of an installed package
    workers: int | None = None  # processes of the engine; None: one a core that tokenize, on Ray one a GPU or node
    ray_address: str | None = None  # of a Ray cluster, "auto" for the one here; None: one is started on this machine
    gpus_per_worker: float | None = None  # on Ray; None: one each if there are any
    index_recipe: str = "auto"  # a faiss factory string, another index's name or NAME:RECIPE; "auto": chosen by size
    index_options: Mapping[str, Any] = field(default_factory=dict)  # those that the index declares
    distance_metric: str = "l2"
    sentence_search: str | None = None  # what finds sentences for subset search: encoder, bm25 ...; None: no subsets
    sentence_index_recipe: str = "auto"  # of sentence vectors, as `index_recipe`
    codes: str = "auto"  # of keys for subset search, such as "OPQ64,PQ64"; "auto": chosen by size
    memory_limit: str | int | None = None  # that building the index may take, such as "8GB"; None: half of what is free
    checkpoint_seconds: float = 15.0  # how much work a kill may cost
    calibration_sentences: int = 768  # held out in turn to choose settings and to train the combiner; 0: neither
    combiner: str = "learned"  # what is trained for the datastore and used by default; "fixed": nothing is trained
    general: str | None = None  # a file of sentences of other domains, for training; None: the package's, if it has any
    auto_compact: float = 0.25  # compact when so large a share of the entries was added or deleted; 0: never
    shots: int = 0  # similar pairs of the corpus in each prompt; for decoder-only models
    shots_by: str = "bm25"  # what finds these

    def __post_init__(self) -> None:
        _require(self.workers is None or self.workers >= 1, "workers must be at least 1", self.workers)
        _require(
            self.distance_metric in DISTANCE_METRICS,
            f"the distance metric must be {', '.join(DISTANCE_METRICS[:-1])} or {DISTANCE_METRICS[-1]}",
            self.distance_metric,
        )
        _require(self.batch_tokens >= 1, "batch-tokens must be at least 1", self.batch_tokens)
        _require(
            self.shard_tokens is None or self.shard_tokens >= 1, "shard-tokens must be at least 1", self.shard_tokens
        )
        _require(
            self.gpus_per_worker is None or self.gpus_per_worker >= 0,
            "gpus-per-worker must be at least 0",
            self.gpus_per_worker,
        )
        _require(0 <= self.auto_compact <= 1, "auto-compact must lie between 0 and 1", self.auto_compact)
        _require(self.shots >= 0, "shots must be at least 0", self.shots)
        _require(self.shots_by in SHOTS_BY, f"shots-by must be {' or '.join(SHOTS_BY)}", self.shots_by)
        require_no_password(self.index_recipe)
        require_no_password(self.sentence_index_recipe)


class BuildOptions(TypedDict, total=False):
    """The fields of `BuildSettings` as keyword arguments; None leaves a default as it is."""

    key_dtype: str | None
    batch_tokens: int | None
    shard_tokens: int | None
    max_length: int | None
    strict: bool | None
    allow_unknown: bool | None
    engine: str | None
    workers: int | None
    ray_address: str | None
    gpus_per_worker: float | None
    index_recipe: str | None
    index_options: Mapping[str, Any] | None
    distance_metric: str | None
    sentence_search: str | None
    sentence_index_recipe: str | None
    codes: str | None
    memory_limit: str | int | None
    checkpoint_seconds: float | None
    calibration_sentences: int | None
    combiner: str | None
    general: str | None
    auto_compact: float | None
    shots: int | None
    shots_by: str | None


class ModelAndBuildOptions(ModelOptions, BuildOptions):
    """What building a datastore takes."""


@dataclass(frozen=True)
class SearchSettings:
    """How neighbours are found and how much they count.  A datastore carries its own, measured when it was built."""

    retriever: str = "full"
    combiner: str = "fixed"
    index: str | None = None  # the name of one of the datastore's indexes; None: its default one
    subset_size: int | None = None  # sentences whose tokens are searched; None: the retriever's own default
    k: int = 16
    temperature: float = 100.0
    weight: float = 0.5  # interpolation weight: the largest λ that the combiner may give to neighbours; 0: model alone
    skip: str | None = None  # "learned": don't search where neighbours are unlikely to change anything; None: always
    pointers: int | None = None  # don't search where so many neighbours continue what was written; None: search
    pointer_agreement: float | None = None  # the least share of these that must have the same token; None: 0.7
    clusters: bool | None = None  # True: entries with keys similar to those of pointers join them
    shots: int | None = None  # similar pairs of the store in each prompt; None: as many as its keys were made with
    shots_by: str | None = None  # what finds these: bm25 or encoder; None: as when its keys were made
    retriever_options: Mapping[str, Any] = field(default_factory=dict)  # those that the retriever declares
    combiner_options: Mapping[str, Any] = field(default_factory=dict)  # those that the combiner declares
    index_options: Mapping[str, Any] = field(default_factory=dict)  # those that the index declares, such as nprobe
    on_index_failure: str | None = None  # an index on a server does not answer: "error" (None), or "base", model alone

    def __post_init__(self) -> None:
        _require(self.k >= 1, "k must be at least 1", self.k)
        _require(self.k <= LARGEST_K, f"k must be at most {LARGEST_K}", self.k)
        _require(self.temperature > 0, "the temperature must be greater than 0", self.temperature)
        least, most = TEMPERATURES
        _require(
            least <= self.temperature <= most,
            f"the temperature must lie between {least:g} and {most:g}",
            self.temperature,
        )
        _require(0 <= self.weight <= 1, "the weight must lie between 0 and 1", self.weight)
        _require(self.skip in (None, *SKIP), f"skip must be {' or '.join(SKIP)}", self.skip)
        _require(self.pointers is None or self.pointers >= 1, "pointers must be at least 1", self.pointers)
        agreement = self.pointer_agreement
        _require(agreement is None or 0 <= agreement <= 1, "pointer-agreement must lie between 0 and 1", agreement)
        _require(self.shots is None or self.shots >= 0, "shots must be at least 0", self.shots)
        _require(self.shots_by in (None, *SHOTS_BY), f"shots-by must be {' or '.join(SHOTS_BY)}", self.shots_by)
        _require(self.subset_size is None or self.subset_size >= 1, "subset-size must be at least 1", self.subset_size)
        _require(
            self.on_index_failure is None or self.on_index_failure in INDEX_FAILURE,
            f"on-index-failure must be {' or '.join(INDEX_FAILURE)}",
            self.on_index_failure,
        )


class SearchOptions(TypedDict, total=False):
    """The fields of `SearchSettings` as keyword arguments; None leaves the datastore's own as it is."""

    retriever: str | None
    combiner: str | None
    index: str | None
    subset_size: int | None
    k: int | None
    temperature: float | None
    weight: float | None
    skip: str | None
    pointers: int | None
    pointer_agreement: float | None
    clusters: bool | None
    shots: int | None
    shots_by: str | None
    retriever_options: Mapping[str, Any] | None
    combiner_options: Mapping[str, Any] | None
    index_options: Mapping[str, Any] | None
    on_index_failure: str | None


@dataclass(frozen=True)
class DecodingSettings:
    """How the model searches for a translation."""

    beam_size: int = 5
    length_penalty: float = 1.0
    max_length: int = 256  # tokens of an output
    nbest: int = 1
    sample: bool = False
    top_k: int = 0  # sampling among the most probable only; 0: all
    top_p: float = 1.0
    sampling_temperature: float = 1.0
    seed: int | None = None
    batch_size: int = 32  # sentences that are under way at a time
    batch_tokens: int | None = None  # and their tokens: the source's, and as many for each beam; None: any number

    def __post_init__(self) -> None:
        _require(self.beam_size >= 1, "the beam size must be at least 1", self.beam_size)
        _require(self.max_length >= 1, "the maximum length must be at least 1", self.max_length)
        _require(self.batch_size >= 1, "the batch size must be at least 1", self.batch_size)
        tokens = self.batch_tokens
        _require(tokens is None or tokens >= 1, "batch-tokens must be at least 1", tokens)
        _require(self.nbest >= 1, "nbest must be at least 1", self.nbest)
        _require(self.sampling_temperature > 0, "the sampling temperature must be above 0", self.sampling_temperature)
        _require(0 < self.top_p <= 1, "top-p must lie between 0 and 1", self.top_p)
        _require(self.top_k >= 0, "top-k must be at least 0", self.top_k)
        if not self.sample:
            _require(self.nbest <= self.beam_size, "nbest cannot be larger than the beam", self.nbest)


class DecodingOptions(TypedDict, total=False):
    """The fields of `DecodingSettings` as keyword arguments; None leaves a default as it is."""

    beam_size: int | None
    length_penalty: float | None
    max_length: int | None
    nbest: int | None
    sample: bool | None
    top_k: int | None
    top_p: float | None
    sampling_temperature: float | None
    seed: int | None
    batch_size: int | None
    batch_tokens: int | None


class TranslateOptions(SearchOptions, DecodingOptions):
    """What translating takes."""


class TranslatorOptions(ModelOptions, SearchOptions, DecodingOptions):
    """What a translator takes."""


def require_no_password(text: str) -> None:
    """Raise an `InvalidSetting` if there is a user or a password in an address: what describes an index is stored."""
    if re.search(r"://[^/]*@", text):
        raise InvalidSetting(
            "The address of an index has a user name or a password in it, which would be stored: "
            "leave it out; for Milvus, put USER:PASSWORD or a token into KNN_SEQ_MILVUS_TOKEN."
        )


def _require(condition: bool, sentence: str, value: object) -> None:
    if not condition:
        raise InvalidSetting(f"{sentence[0].upper()}{sentence[1:]}, not {value}.")


Settings = TypeVar("Settings", ModelSettings, BuildSettings, SearchSettings, DecodingSettings)


def override(settings: Settings, options: Mapping[str, Any]) -> Settings:
    """The settings with every option that is not None in the place of its field; others' options are passed over.

    Where a field is a mapping, its entries are replaced one by one.
    """
    known = {entry.name: getattr(settings, entry.name) for entry in fields(settings)}
    given = {name: value for name, value in options.items() if name in known and value is not None}
    merged = {name: {**known[name], **value} for name, value in given.items() if isinstance(value, Mapping)}
    return replace(settings, **{**given, **merged})


def reject_unknown(options: Mapping[str, Any], *kinds: type) -> None:
    """Raise an `InvalidSetting` that names an option none of the settings has."""
    known = {entry.name for kind in kinds for entry in fields(kind)}
    for name in options:
        if name not in known:
            raise InvalidSetting(f"There is no setting '{name}': choose from {', '.join(sorted(known))}.")


def with_value(settings: Any) -> dict[str, Any]:
    """The fields of settings that say something, for JSON and for people."""
    named = {entry.name: getattr(settings, entry.name) for entry in fields(settings)}
    return {
        name: dict(value) if isinstance(value, Mapping) else value
        for name, value in named.items()
        if value is not None and value != {}
    }
