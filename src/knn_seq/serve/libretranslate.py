"""LibreTranslate's API: what CAT tools and clients of LibreTranslate ask for, answered as it answers."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse
from pydantic import BaseModel, Field, ValidationError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from knn_seq.serve.access import Access
from knn_seq.serve.documents import begin_document, document_suffixes, download
from knn_seq.serve.errors import bad_request
from knn_seq.serve.jobs import Jobs
from knn_seq.serve.languages import Detection, detect, language_code, language_name
from knn_seq.serve.memory import NewPair, write_pairs
from knn_seq.serve.protected import TranslatedText
from knn_seq.serve.schemas import ERRORS, bearer
from knn_seq.serve.service import Service, client_gone
from knn_seq.serve.stores import Stores

FORMATS = ("text", "html")
LARGEST_ALTERNATIVES = 10
FIELDS, LARGEST_FIELD = 32, 1 << 20  # of a form: how many, and their bytes
LEAST_TO_DETECT = 40  # characters of a text whose language can be told
FILE_SECONDS = 0.1  # between two looks at a file that is translated


class Language(BaseModel):
    """A language that can be translated from."""

    code: str
    name: str
    targets: list[str]


class DetectedLanguage(BaseModel):
    """A language that a text may be in."""

    language: str
    confidence: float


class TranslateRequest(BaseModel):
    """Texts to translate; as JSON or as a form."""

    q: str | list[str] = Field(description="The text, or several")
    source: str = Field(description="Language code, or 'auto'")
    target: str = Field(description="Language code")
    format: str = Field(default="text", description="'text' or 'html'")
    alternatives: int = Field(default=0, ge=0, le=LARGEST_ALTERNATIVES)
    api_key: str | None = None


class TranslateAnswer(BaseModel):
    """The translation of each text."""

    translatedText: str | list[str]
    alternatives: list[str] | list[list[str]] | None = None
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] | None = None


class SuggestRequest(BaseModel):
    """A better translation; as JSON or as a form."""

    q: str = Field(description="The source text")
    s: str = Field(description="Its translation")
    source: str = Field(description="Language code")
    target: str = Field(description="Language code")
    api_key: str | None = None


class DetectRequest(BaseModel):
    """A text; as JSON or as a form."""

    q: str
    api_key: str | None = None


class Success(BaseModel):
    """It is done."""

    success: bool


class TranslatedFile(BaseModel):
    """Where a translated file is."""

    translatedFileUrl: str


class LibreTranslate:
    """Answers the requests of LibreTranslate's API.

    Args:
        stores: What translates.
        service: How.
        access: Who may.
        jobs: Who translates files.
    """

    def __init__(self, stores: Stores, service: Service, access: Access, jobs: Jobs) -> None:
        self.stores, self.service, self.access, self.jobs = stores, service, access, jobs

    def languages(self) -> list[Language]:
        """All languages there are; one that is only translated into is listed, too: clients look codes up here."""
        return [
            Language(code=code, name=language_name(code), targets=sorted(self.stores.targets(code)))
            for code in sorted({*self.stores.sources(), *self.stores.targets()})
        ]

    async def translate(self, request: Request) -> TranslateAnswer:
        """Translate one text or several."""
        given = await self._permitted(request, "translate")
        many, texts = _texts(given)
        source, target = _required(given, "source"), _required(given, "target")
        if (format := given.get("format") or "text") not in FORMATS:
            raise bad_request(f"{str(format)[:32]} format is not supported")
        number = _alternatives(given)
        self.service.check(texts)
        if _is_probe(texts, source, target) and not self.stores.offers(source, target):
            return TranslateAnswer(translatedText=texts if many else texts[0])
        detected = self._detected(texts, target) if source == "auto" else None
        codes = [each.language for each in detected] if detected else [source] * len(texts)
        made: dict[int, TranslatedText] = {}
        for code in dict.fromkeys(codes):
            served, places = self.stores.between(code, target), [i for i, own in enumerate(codes) if own == code]
            own = await self.service.translate(
                served,
                [texts[i] for i in places],
                alternatives=number,
                gone=partial(client_gone, request),
                html=format == "html",
            )
            made.update(zip(places, own, strict=True))
        answer = TranslateAnswer(translatedText=[made[i].text for i in range(len(texts))] if many else made[0].text)
        if number:
            answer.alternatives = [made[i].alternatives for i in range(len(texts))] if many else made[0].alternatives
        if detected:
            found = [DetectedLanguage(**each._asdict()) for each in detected]
            answer.detectedLanguage = found if many else found[0]
        return answer

    async def detect(self, request: Request) -> list[DetectedLanguage]:
        """The languages that a text may be in, most likely first."""
        text = _required(await self._permitted(request, "translate"), "q")
        self.service.check([text])
        return [DetectedLanguage(**each._asdict()) for each in detect(text, self.stores.sources())]

    async def suggest(self, request: Request) -> Success:
        """Put a translation into the memory; the next request uses it."""
        given = await self._permitted(request, "edit")
        q, s, source, target = (_required(given, name) for name in ("q", "s", "source", "target"))
        self.service.check([q, s])
        try:
            pair = NewPair(source=q, target=s)
        except ValidationError as error:
            raise bad_request(f"Invalid request: {error.errors()[0]['msg']}") from None
        await write_pairs(self.service, self.stores.between(source, target), [pair], update=True)
        return Success(success=True)

    async def translate_file(self, request: Request) -> TranslatedFile:
        """Translate a file, and tell where it is."""
        given = await self._permitted(request, "translate")
        file = given.get("file")
        if not isinstance(file, UploadFile):
            raise bad_request("Invalid request: missing file parameter")
        source, target = _required(given, "source"), _required(given, "target")
        if source == "auto":
            source = next((code for code in self.stores.sources() if self.stores.offers(code, target)), source)
        served = self.stores.between(source, target)
        job = await begin_document(served, self.service, self.jobs, file)
        while (state := self.jobs.state(job.id)).state in ("waiting", "running"):
            if await request.is_disconnected():
                job.cancelled = True
                raise bad_request("The client has gone away.")
            await asyncio.sleep(FILE_SECONDS)
        if state.error:
            raise bad_request(state.error)
        return TranslatedFile(translatedFileUrl=str(request.url_for("download_file", name=f"{job.id}.{state.name}")))

    def frontend_settings(self) -> dict[str, Any]:
        """What LibreTranslate's own page wants to know."""
        first = next(iter(self.stores))
        keys = self.access.keys is not None
        source, target = (
            {"code": language_code(code), "name": language_name(code)} for code in (first.source, first.target)
        )
        return {
            "apiKeys": keys,
            "charLimit": self.service.settings.largest_text,
            "filesTranslation": True,
            "frontendTimeout": 500,
            "keyRequired": keys,
            "language": {"source": source, "target": target},
            "suggestions": True,
            "supportedFilesFormat": document_suffixes(),
        }

    async def _permitted(self, request: Request, role: str) -> dict[str, Any]:
        given = await parameters(request)
        key = given.get("api_key")
        sent = key if isinstance(key, str) and key else bearer(request.headers.get("authorization"))
        self.access.check(sent, role)
        return given

    def _detected(self, texts: list[str], target: str) -> list[Detection]:
        """The language of each text, of those that can be translated into the target; short ones are read together."""
        offered = [code for code in self.stores.sources() if self.stores.offers(code, target)]
        together = detect(" ".join(texts), offered)
        if not together:
            raise bad_request("The language cannot be detected: give the source parameter.")
        return [(detect(text, offered) if len(text) > LEAST_TO_DETECT else together)[0] for text in texts]


def libretranslate_api(stores: Stores, service: Service, access: Access, jobs: Jobs) -> APIRouter:
    """The routes of LibreTranslate's API.

    Args:
        stores: What translates.
        service: How.
        access: Who may.
        jobs: Who translates files.
    """
    router = APIRouter(tags=["LibreTranslate"], responses=ERRORS)
    api = LibreTranslate(stores, service, access, jobs)

    @router.get("/languages")
    async def languages() -> list[Language]:
        """The languages there are."""
        return api.languages()

    @router.post("/translate", response_model_exclude_none=True, openapi_extra=_accepts(TranslateRequest))
    async def translate(request: Request) -> TranslateAnswer:
        """Translate one text or several."""
        return await api.translate(request)

    @router.post("/detect", openapi_extra=_accepts(DetectRequest))
    async def detect_language(request: Request) -> list[DetectedLanguage]:
        """The languages that a text may be in, most likely first."""
        return await api.detect(request)

    @router.post("/suggest", openapi_extra=_accepts(SuggestRequest))
    async def suggest(request: Request) -> Success:
        """Put a translation into the memory; the next request uses it."""
        return await api.suggest(request)

    @router.post("/translate_file", openapi_extra=_FILE)
    async def translate_file(request: Request) -> TranslatedFile:
        """Translate a file, and tell where it is."""
        return await api.translate_file(request)

    @router.get("/download_file/{name}", response_class=FileResponse)
    async def download_file(name: str) -> FileResponse:
        """A translated file; its name, which is random, is the key to it."""
        return download(jobs, name.partition(".")[0])

    @router.get("/frontend/settings")
    async def frontend_settings() -> dict[str, Any]:
        """What LibreTranslate's own page wants to know."""
        return api.frontend_settings()

    @router.get("/health")
    async def health() -> dict[str, str]:
        """Whether the server answers."""
        return {"status": "ok"}

    return router


async def parameters(request: Request) -> dict[str, Any]:
    """The fields of a request, of JSON or of a form; a key in an address, which others may log, does not count."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json":
        try:
            given = json.loads(await request.body())
        except (ValueError, RecursionError):
            raise bad_request("Invalid JSON format") from None
        if not isinstance(given, dict):
            raise bad_request("Invalid JSON format: an object is needed")
        return given
    try:
        form = await request.form(max_files=1, max_fields=FIELDS, max_part_size=LARGEST_FIELD)
    except HTTPException:
        raise
    except Exception:
        raise bad_request("Invalid form") from None
    fields: dict[str, Any] = {name: value for name, value in request.query_params.items() if name != "api_key"}
    for name, value in form.items():
        fields[name] = value.replace("\r\n", "\n") if isinstance(value, str) else value
    return fields


def _texts(given: dict[str, Any]) -> tuple[bool, list[str]]:
    q = given.get("q")
    texts = [text for text in (q if isinstance(q, list) else [q]) if isinstance(text, str)]
    if not q or len(texts) != (len(q) if isinstance(q, list) else 1):
        raise bad_request("Invalid request: missing q parameter")
    return isinstance(q, list), texts


def _required(given: dict[str, Any], name: str) -> str:
    value = given.get(name)
    if not value or not isinstance(value, str):
        raise bad_request(f"Invalid request: missing {name} parameter")
    return value


def _is_probe(texts: list[str], source: str, target: str) -> bool:
    """Whether this is what Weblate asks every server, whatever its languages, before it saves its settings."""
    return texts == ["test"] and (source, target) == ("en", "de")


def _alternatives(given: dict[str, Any]) -> int:
    try:
        number = int(given.get("alternatives") or 0)
    except (TypeError, ValueError, OverflowError):
        raise bad_request("Invalid request: alternatives parameter is not a number") from None
    if not 0 <= number <= LARGEST_ALTERNATIVES:
        raise bad_request(f"Invalid request: alternatives parameter must be <= {LARGEST_ALTERNATIVES}")
    return number


def _accepts(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    kinds = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data")
    return {"requestBody": {"required": True, "content": {kind: {"schema": schema} for kind in kinds}}}


_FILE: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file", "source", "target"],
                    "properties": {
                        "file": {"type": "string", "format": "binary"},
                        **{name: {"type": "string"} for name in ("source", "target", "api_key")},
                    },
                }
            }
        },
    }
}
