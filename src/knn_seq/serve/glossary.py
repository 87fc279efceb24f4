"""The glossary of a datastore: terms whose translation is binding."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from knn_seq.datastore import Datastore
from knn_seq.glossary import Glossary, Term, keep_glossary, stored_glossary
from knn_seq.serve.access import Access
from knn_seq.serve.schemas import ERRORS, may
from knn_seq.serve.service import Service, require_unicode
from knn_seq.serve.stores import Served, Stores

LONGEST_TERM = 200
Words = Annotated[str, Field(min_length=1, max_length=LONGEST_TERM, pattern=r"\S")]


class NewTerm(BaseModel):
    """A term and what it has to be in the target language."""

    model_config = ConfigDict(extra="forbid")

    source: Words
    target: Words
    case_sensitive: bool = False
    forbidden: list[Words] = Field(default=[], max_length=50, description="Translations that must not be used")


class NewTerms(BaseModel):
    """Terms for the glossary."""

    model_config = ConfigDict(extra="forbid")

    terms: list[NewTerm] = Field(min_length=1, max_length=1000)


class StoredTerm(BaseModel):
    """A term of the glossary."""

    source: str
    target: str
    case_sensitive: bool
    forbidden: list[str]


class Terms(BaseModel):
    """The terms of the glossary."""

    terms: list[StoredTerm]


def glossary_api(stores: Stores, service: Service, access: Access) -> APIRouter:
    """The routes of glossaries.

    Args:
        stores: The datastores.
        service: Tells clients what went wrong.
        access: Who may.
    """
    router = APIRouter(prefix="/v1/stores/{store}/glossary", tags=["glossary"], responses=ERRORS)

    @router.get("", dependencies=[may(access, "translate")])
    async def terms(store: str) -> Terms:
        """All terms."""
        served = stores.named(store)
        return _told(await service.guarded(served, asyncio.to_thread(_stored, served)))

    @router.post("", dependencies=[may(access, "edit")])
    async def add(store: str, new: NewTerms) -> Terms:
        """Add terms; those with the same source and target are replaced."""
        served = stores.named(store)
        require_unicode([text for term in new.terms for text in (term.source, term.target, *term.forbidden)])
        given = Glossary(
            Term(term.source.strip(), term.target.strip(), term.case_sensitive, forbidden=tuple(term.forbidden))
            for term in new.terms
        )
        return _told(await service.guarded(served, asyncio.to_thread(_change, served, given, None)))

    @router.delete("", dependencies=[may(access, "edit")])
    async def delete(store: str, source: Words) -> Terms:
        """Delete the terms of a source."""
        served = stores.named(store)
        return _told(await service.guarded(served, asyncio.to_thread(_change, served, None, source)))

    return router


def _stored(served: Served) -> Glossary:
    return stored_glossary(Datastore(served.store.path)) or Glossary()


def _change(served: Served, added: Glossary | None, deleted: str | None) -> Glossary:
    """Write the glossary with terms added, or without those of a source."""
    store = Datastore(served.store.path)
    glossary = stored_glossary(store) or Glossary()
    if added is not None:
        glossary = glossary.merged(added)
    if deleted is not None:
        glossary = glossary.without(deleted)
    keep_glossary(store, glossary)
    return glossary


def _told(glossary: Glossary) -> Terms:
    return Terms(
        terms=[
            StoredTerm(
                source=term.source,
                target=term.target,
                case_sensitive=term.case_sensitive,
                forbidden=list(term.forbidden),
            )
            for term in glossary
        ]
    )
