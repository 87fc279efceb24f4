"""All settings and their defaults; the command line, the Python API and the datastore's manifest read the same ones."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from knn_seq.errors import UserError

INDEX_FAILURE = ("error", "base")


@dataclass(frozen=True)
class ModelSettings:
    """Which model, and how it is asked for keys."""

    name: str  # a hub name, a path, or BACKEND:NAME such as firefox:pt-en
    source_lang: str | None = None
    target_lang: str | None = None
    prompt: str | None = None  # decoder-only models: a template with {source}
    key: str = "ffn_in"  # ffn_in, ffn_out, or a module's path (its input; its output with ":output" behind)
    device: str | None = None  # None: CUDA if there is, else the CPU
    dtype: str = "float32"
    data: str | None = None  # fairseq: the folder of dictionaries, if neither the checkpoint nor its folder knows them


@dataclass(frozen=True)
class BuildSettings:
    """How a datastore is made from text."""

    key_dtype: str = "float16"
    batch_tokens: int = 4096  # tokens, padding counted, in one batch of the key computation
    shard_tokens: int | None = None  # target tokens of a shard, the unit that workers share; None: chosen by size
    max_length: int = 512  # tokens of one side; longer pairs are left out
    strict: bool = False  # stop at the first bad line instead of counting it
    engine: str = "local"  # who does the work: local, ray, or one of an installed package
    workers: int | None = None  # processes of the engine; None: one a core that tokenize, on Ray one a GPU or node
    ray_address: str | None = None  # of a Ray cluster, "auto" for the one here; None: one is started on this machine
    gpus_per_worker: float | None = None  # on Ray; None: one each if there are any
    index: str = "auto"  # a faiss factory string, another index's name or NAME:RECIPE; "auto": chosen by size
    metric: str = "l2"
    sentences: str | None = None  # what finds sentences for subset search: encoder, bm25 ...; None: no subset search
    sentence_index: str = "auto"  # of sentence vectors, as `index`
    codes: str = "auto"  # of keys for subset search, such as "OPQ64,PQ64"; "auto": chosen by size
    memory: str | int | None = None  # that building the index may take, such as "8GB"; None: half of what is free
    checkpoint_seconds: float = 15.0  # how much work a kill may cost
    calibration_sentences: int = 256  # sentences held out in turn to choose k, temperature and weight; 0: none

    def __post_init__(self) -> None:
        _require(self.workers is None or self.workers >= 1, "workers must be at least 1", self.workers)
        _require(self.batch_tokens >= 1, "batch-tokens must be at least 1", self.batch_tokens)
        _require(
            self.shard_tokens is None or self.shard_tokens >= 1, "shard-tokens must be at least 1", self.shard_tokens
        )
        _require(
            self.gpus_per_worker is None or self.gpus_per_worker >= 0,
            "gpus-per-worker must be at least 0",
            self.gpus_per_worker,
        )
        require_no_password(self.index)
        require_no_password(self.sentence_index)


@dataclass(frozen=True)
class SearchSettings:
    """How neighbours are found and how much they count.  A datastore carries its own, measured when it was built."""

    retriever: str = "full"
    combiner: str = "fixed"
    subset_size: int | None = None  # sentences whose tokens are searched; None: the retriever's own default
    index: str | None = None  # the name of one of the datastore's indexes; None: its default one
    k: int = 16
    temperature: float = 100.0
    weight: float = 0.5
    sure: float | None = None  # where the model holds a token at least this likely it is not steered; None: always
    nprobe: int | None = None  # inverted lists visited by one query; None: the index's own default
    reach: float | None = None  # times the nearest list's squared distance up to which lists are visited at all
    ef_search: int | None = None  # candidates that a walk over a graph keeps
    refine_factor: int | None = None  # how many times k candidates an index with refinement ranks anew
    on_index_failure: str | None = (
        None  # an index elsewhere does not answer: "error" (None), or "base", the model alone
    )

    def __post_init__(self) -> None:
        _require(self.k >= 1, "k must be at least 1", self.k)
        _require(self.temperature > 0, "the temperature must be greater than 0", self.temperature)
        _require(0 <= self.weight <= 1, "the weight must lie between 0 and 1", self.weight)
        _require(self.sure is None or 0 < self.sure <= 1, "sure must lie between 0 and 1", self.sure)
        _require(self.subset_size is None or self.subset_size >= 1, "subset-size must be at least 1", self.subset_size)
        _require(self.nprobe is None or self.nprobe >= 1, "nprobe must be at least 1", self.nprobe)
        _require(self.reach is None or self.reach >= 1, "reach must be at least 1", self.reach)
        _require(self.ef_search is None or self.ef_search >= 1, "ef-search must be at least 1", self.ef_search)
        _require(
            self.refine_factor is None or self.refine_factor >= 1,
            "refine-factor must be at least 1",
            self.refine_factor,
        )
        _require(
            self.on_index_failure is None or self.on_index_failure in INDEX_FAILURE,
            f"on-index-failure must be {' or '.join(INDEX_FAILURE)}",
            self.on_index_failure,
        )


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
    batch_size: int = 32

    def __post_init__(self) -> None:
        _require(self.beam_size >= 1, "the beam size must be at least 1", self.beam_size)
        _require(self.max_length >= 1, "the maximum length must be at least 1", self.max_length)
        _require(self.batch_size >= 1, "the batch size must be at least 1", self.batch_size)
        _require(self.nbest >= 1, "nbest must be at least 1", self.nbest)
        _require(self.sampling_temperature > 0, "the sampling temperature must be above 0", self.sampling_temperature)
        _require(0 < self.top_p <= 1, "top-p must lie between 0 and 1", self.top_p)
        _require(self.top_k >= 0, "top-k must be at least 0", self.top_k)
        if not self.sample:
            _require(self.nbest <= self.beam_size, "nbest cannot be larger than the beam", self.nbest)


def require_no_password(text: str) -> None:
    """Raise a `UserError` if there is a user or a password in an address: what describes an index is stored."""
    if re.search(r"://[^/]*@", text):
        raise UserError(
            "The address of an index has a user name or a password in it, which would be stored: "
            "leave it out; for Milvus, put USER:PASSWORD or a token into KNN_SEQ_MILVUS_TOKEN."
        )


def _require(condition: bool, sentence: str, value: object) -> None:
    if not condition:
        raise UserError(f"{sentence[0].upper()}{sentence[1:]}, not {value}.")


Settings = TypeVar("Settings", ModelSettings, BuildSettings, SearchSettings, DecodingSettings)


def override(settings: Settings, options: Mapping[str, Any]) -> Settings:
    """The settings with every option that is not None put in their place; options of other settings are passed over."""
    known = {entry.name for entry in fields(settings)}
    return replace(settings, **{name: value for name, value in options.items() if name in known and value is not None})


def reject_unknown(options: Mapping[str, Any], *kinds: type) -> None:
    """Raise a `UserError` that names an option none of the settings has."""
    known = {entry.name for kind in kinds for entry in fields(kind)}
    for name in options:
        if name not in known:
            raise UserError(f"There is no setting '{name}': choose from {', '.join(sorted(known))}.")
