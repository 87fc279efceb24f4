"""Our own API: translations with explanations, and what is served."""

from __future__ import annotations

from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from knn_seq.decoding import Translation
from knn_seq.explain import explain, to_dicts
from knn_seq.explain.words import around_word, words_of
from knn_seq.serve.access import Access
from knn_seq.serve.schemas import ERRORS, may
from knn_seq.serve.service import Service, client_gone
from knn_seq.serve.stores import Served, Stores

NEIGHBOURS = 5


class Options(BaseModel):
    """Settings of one request; those that are left out are the datastore's own."""

    model_config = ConfigDict(extra="forbid")

    retriever: str | None = Field(default=None, max_length=64)
    combiner: str | None = Field(default=None, max_length=64)
    index: str | None = Field(default=None, max_length=64)
    k: int | None = Field(default=None, ge=1, le=1024)
    temperature: float | None = Field(default=None, gt=0, le=1e9, allow_inf_nan=False)
    weight: float | None = Field(default=None, ge=0, le=1, allow_inf_nan=False)
    subset_size: int | None = Field(default=None, ge=1, le=100_000)
    skip: str | None = Field(default=None, max_length=64)
    beam_size: int | None = Field(default=None, ge=1, le=32)
    length_penalty: float | None = Field(default=None, ge=-10, le=10, allow_inf_nan=False)

    def given(self) -> dict[str, Any]:
        """Those that were given."""
        return self.model_dump(exclude_none=True)


class TranslationRequest(BaseModel):
    """Texts to translate."""

    model_config = ConfigDict(extra="forbid")

    texts: list[str] = Field(min_length=1)
    store: str | None = Field(default=None, description="The datastore's name; the first if it is left out")
    html: bool = Field(default=False, description="The texts are HTML, whose tags stay")
    alternatives: int = Field(default=0, ge=0, le=10)
    explain: bool = Field(default=False, description="Tell for each token what decided it")
    neighbours: int = Field(default=NEIGHBOURS, ge=0, le=64, description="Neighbours of a token that are told")
    base: bool = Field(default=False, description="Give the translation of the model alone, too")
    exact: bool = Field(default=True, description="A source that the memory has gets the memory's translation")
    options: Options = Options()


class TranslatedTextAnswer(BaseModel):
    """A text, translated."""

    text: str
    learned: bool = Field(default=False, description="It is the memory's translation of exactly this source")
    alternatives: list[str] = []
    base: str | None = None
    sentences: list[dict[str, Any]] = Field(default=[], description="Explanations, sentence by sentence")


class TranslationAnswer(BaseModel):
    """The translations of a request."""

    store: str
    settings: dict[str, Any]
    translations: list[TranslatedTextAnswer]


class StoreInfo(BaseModel):
    """A datastore that is served."""

    name: str
    source: str
    target: str
    model: str
    sentences: int
    entries: int
    settings: dict[str, Any]
    combiners: list[str]
    retrievers: list[str]


def v1_api(stores: Stores, service: Service, access: Access) -> APIRouter:
    """The routes of translations and datastores.

    Args:
        stores: What translates.
        service: How.
        access: Who may.
    """
    router = APIRouter(prefix="/v1", tags=["translations"], responses=ERRORS)

    @router.get("/stores", dependencies=[may(access, "translate")])
    async def list_stores() -> list[StoreInfo]:
        """What is served."""
        return [_info(each) for each in stores]

    @router.post("/translate", dependencies=[may(access, "translate")])
    async def translate(request: Request, wanted: TranslationRequest) -> TranslationAnswer:
        """Translate texts, with what decided each token if that is asked for."""
        served, options, gone = stores.named(wanted.store), wanted.options.given(), partial(client_gone, request)
        run = partial(service.translate, served, wanted.texts, gone=gone, html=wanted.html)
        made = await run(options=options, alternatives=wanted.alternatives, exact=wanted.exact)
        alone = await run(options={**options, "weight": 0.0}, exact=False) if wanted.base else []
        answers = []
        for number, each in enumerate(made):
            answer = TranslatedTextAnswer(text=each.text, learned=each.learned, alternatives=each.alternatives)
            answer.base = alone[number].text if alone else None
            if wanted.explain:
                work = served.queue.call(partial(_explained, served, each.sentences, options, wanted.neighbours))
                answer.sentences = await service.guarded(served, work, gone)
            answers.append(answer)
        search, _ = served.translator.settings(options)
        return TranslationAnswer(store=served.name, settings=dict(vars(search)), translations=answers)

    return router


def _explained(
    served: Served, sentences: list[Translation], options: dict[str, Any], neighbours: int
) -> list[dict[str, Any]]:
    """Why each sentence of a text was translated as it was."""
    translator, store = served.translator, served.current
    explanations = explain(translator, sentences, neighbours, **options)
    tokenizer, told = translator.model.tokenizer, to_dicts(explanations, store)
    for each, sentence in zip(told, sentences, strict=True):
        for neighbour in (found for token in each["tokens"] for found in token["neighbours"]):
            target = store.targets[neighbour["sentence"]].tolist()
            neighbour["around"] = around_word(neighbour["target"], target, neighbour["position"], tokenizer)
        each["words"] = [word._asdict() for word in words_of(sentence.text, sentence.tokens, tokenizer)]
    return told


def _info(served: Served) -> StoreInfo:
    store = served.current
    manifest = store.manifest
    return StoreInfo(
        name=served.name,
        source=served.source,
        target=served.target,
        model=manifest.model.spec,
        sentences=manifest.counts.sentences,
        entries=manifest.counts.tokens,
        settings=dict(vars(store.search_settings)),
        retrievers=["full", *(["subset"] if manifest.subset else [])],
        combiners=sorted({"fixed", "distance", *(info.type for info in manifest.combiners.values())}),
    )
