"""Our own API: translations with explanations, and what is served."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Header, Request
from pydantic import BaseModel, ConfigDict, Field

from knn_seq.explain import explain, to_dicts
from knn_seq.explain.words import around_word, words_of
from knn_seq.serve.access import Access
from knn_seq.serve.libretranslate import ERRORS
from knn_seq.serve.service import Service, TranslatedText
from knn_seq.serve.stores import Served, Stores

NEIGHBOURS = 5


class Options(BaseModel):
    """Settings of one request; those that are left out are the datastore's own."""

    model_config = ConfigDict(extra="forbid")

    retriever: str | None = None
    combiner: str | None = None
    index: str | None = None
    k: int | None = Field(default=None, ge=1, le=1024)
    temperature: float | None = Field(default=None, gt=0)
    weight: float | None = Field(default=None, ge=0, le=1)
    subset_size: int | None = Field(default=None, ge=1)
    skip: str | None = None
    beam_size: int | None = Field(default=None, ge=1, le=32)
    length_penalty: float | None = None

    def given(self) -> dict[str, Any]:
        """Those that were given."""
        return self.model_dump(exclude_none=True)


class TranslationRequest(BaseModel):
    """Texts to translate."""

    model_config = ConfigDict(extra="forbid")

    texts: list[str] = Field(min_length=1)
    store: str | None = Field(default=None, description="The datastore's name; the first if it is left out")
    alternatives: int = Field(default=0, ge=0, le=10)
    explain: bool = Field(default=False, description="Tell for each token what decided it")
    neighbours: int = Field(default=NEIGHBOURS, ge=0, le=64, description="Neighbours of a token that are told")
    base: bool = Field(default=False, description="Give the translation of the model alone, too")
    options: Options = Options()


class TranslatedTextAnswer(BaseModel):
    """A text, translated."""

    text: str
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
    """The routes of our own API.

    Args:
        stores: What translates.
        service: How.
        access: Who may.
    """
    router = APIRouter(prefix="/v1", tags=["knn-seq"], responses=ERRORS)

    @router.get("/stores")
    async def list_stores(authorization: str | None = Header(None)) -> list[StoreInfo]:
        """What is served."""
        access.check(bearer(authorization), "translate")
        return [_info(each) for each in stores]

    @router.post("/translate")
    async def translate(
        request: Request, wanted: TranslationRequest, authorization: str | None = Header(None)
    ) -> TranslationAnswer:
        """Translate texts, with what decided each token if that is asked for."""
        access.check(bearer(authorization), "translate")
        served, options, gone = stores.named(wanted.store), wanted.options.given(), request.is_disconnected
        made = await service.translate(served, wanted.texts, options, wanted.alternatives, gone)
        alone = (
            await service.translate(served, wanted.texts, {**options, "weight": 0.0}, 0, gone) if wanted.base else []
        )
        answers = []
        for number, each in enumerate(made):
            answer = TranslatedTextAnswer(text=each.text, alternatives=each.alternatives)
            answer.base = alone[number].text if alone else None
            if wanted.explain:
                answer.sentences = await _explained(served, each, options, wanted.neighbours)
            answers.append(answer)
        search, _ = served.translator.settings(options)
        return TranslationAnswer(store=served.name, settings=dict(vars(search)), translations=answers)

    return router


def bearer(authorization: str | None) -> str | None:
    """The key of an Authorization header."""
    kind, _, key = (authorization or "").partition(" ")
    return key.strip() if kind.lower() == "bearer" else None


async def _explained(
    served: Served, made: TranslatedText, options: dict[str, Any], neighbours: int
) -> list[dict[str, Any]]:
    """Why each sentence of a text was translated as it was."""

    def run() -> list[dict[str, Any]]:
        explanations = explain(served.translator, made.sentences, neighbours, **options)
        tokenizer, told = served.translator.model.tokenizer, to_dicts(explanations, served.store)
        for each, sentence in zip(told, made.sentences, strict=True):
            for neighbour in (found for token in each["tokens"] for found in token["neighbours"]):
                target = served.store.targets[neighbour["sentence"]].tolist()
                neighbour["around"] = around_word(neighbour["target"], target, neighbour["position"], tokenizer)
            each["words"] = [word._asdict() for word in words_of(sentence.text, sentence.tokens, tokenizer)]
        return told

    return await served.queue.call(run)


def _info(served: Served) -> StoreInfo:
    manifest = served.store.manifest
    return StoreInfo(
        name=served.name,
        source=served.source,
        target=served.target,
        model=manifest.model.spec,
        sentences=manifest.counts.sentences,
        entries=len(served.store),
        settings=dict(vars(served.store.search_settings)),
        retrievers=["full", *(["subset"] if manifest.subset else [])],
        combiners=sorted({"fixed", "distance", *(info.type for info in manifest.combiners.values())}),
    )
