"""LibreTranslate's API: what CAT tools and clients of LibreTranslate ask for, answered as it answers."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from knn_seq.serve.access import Access
from knn_seq.serve.errors import RequestError, bad_request
from knn_seq.serve.languages import Detection, detect, language_name
from knn_seq.serve.service import Service
from knn_seq.serve.stores import Stores

FORMATS = ("text", "html")
LARGEST_ALTERNATIVES = 10


class Error(BaseModel):
    """What is wrong with a request."""

    error: str


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


ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": Error, "description": description}
    for status, description in (
        (400, "The request cannot be understood, or a key is missing"),
        (403, "The key does not permit this"),
        (429, "Too many requests: Retry-After says when to try again"),
        (503, "Too much is waiting: Retry-After says when to try again"),
    )
}


def libretranslate_api(stores: Stores, service: Service, access: Access) -> APIRouter:
    """The routes of LibreTranslate's API.

    Args:
        stores: What translates.
        service: How.
        access: Who may.
    """
    router = APIRouter(tags=["LibreTranslate"], responses=ERRORS)

    @router.get("/languages", response_model=list[Language])
    async def languages() -> list[Language]:
        """The languages there are."""
        return [
            Language(code=code, name=language_name(code), targets=sorted(stores.targets(code)))
            for code in stores.sources()
        ]

    @router.post(
        "/translate",
        response_model=TranslateAnswer,
        response_model_exclude_none=True,
        openapi_extra=_accepts(TranslateRequest),
    )
    async def translate(request: Request) -> TranslateAnswer:
        """Translate one text or several."""
        given = await parameters(request)
        access.check(_key(given), "translate")
        many, texts = _texts(given)
        source, target = _required(given, "source"), _required(given, "target")
        if (format := given.get("format") or "text") not in FORMATS:
            raise bad_request(f"{str(format)[:32]} format is not supported")
        number = _alternatives(given)
        detected = _detected(texts, stores) if source == "auto" else None
        served = stores.between(detected[0].language if detected else source, target)
        made = await service.translate(served, texts, alternatives=number, gone=request.is_disconnected)
        answer = TranslateAnswer(translatedText=[each.text for each in made] if many else made[0].text)
        if number:
            answer.alternatives = [each.alternatives for each in made] if many else made[0].alternatives
        if detected:
            found = [DetectedLanguage(**each._asdict()) for each in detected]
            answer.detectedLanguage = found if many else found[0]
        return answer

    @router.post("/detect", response_model=list[DetectedLanguage])
    async def detect_language(request: Request) -> list[DetectedLanguage]:
        """The languages that a text may be in, most likely first."""
        given = await parameters(request)
        access.check(_key(given), "translate")
        text = _required(given, "q")
        service.check([text])
        return [DetectedLanguage(**each._asdict()) for each in detect(text, stores.sources())]

    @router.get("/frontend/settings")
    async def frontend_settings() -> dict[str, Any]:
        """What LibreTranslate's own page wants to know."""
        first = next(iter(stores))
        return {
            "apiKeys": access.keys is not None,
            "charLimit": service.settings.largest_text,
            "frontendTimeout": 500,
            "keyRequired": access.keys is not None,
            "language": {
                "source": {"code": first.source, "name": language_name(first.source)},
                "target": {"code": first.target, "name": language_name(first.target)},
            },
            "suggestions": True,
            "supportedFilesFormat": [],
        }

    @router.get("/health")
    async def health() -> dict[str, str]:
        """Whether the server answers."""
        return {"status": "ok"}

    return router


async def parameters(request: Request) -> dict[str, Any]:
    """The fields of a request, of JSON or of a form."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json":
        try:
            given = json.loads(await request.body())
        except (ValueError, RecursionError):
            raise bad_request("Invalid JSON format") from None
        if not isinstance(given, dict):
            raise bad_request("Invalid JSON format: an object is needed")
        return given
    try:
        form = await request.form()
    except Exception:
        raise bad_request("Invalid form") from None
    fields: dict[str, Any] = {}
    for name in form:
        values = form.getlist(name)
        fields[name] = values[0] if len(values) == 1 else values
    return {**dict(request.query_params), **fields}


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


def _key(given: dict[str, Any]) -> str | None:
    key = given.get("api_key")
    return key if isinstance(key, str) else None


def _alternatives(given: dict[str, Any]) -> int:
    try:
        number = int(given.get("alternatives") or 0)
    except (TypeError, ValueError):
        raise bad_request("Invalid request: alternatives parameter is not a number") from None
    if not 0 <= number <= LARGEST_ALTERNATIVES:
        raise bad_request(f"Invalid request: alternatives parameter must be <= {LARGEST_ALTERNATIVES}")
    return number


def _detected(texts: list[str], stores: Stores) -> list[Detection]:
    """The language of each text, which must be the same for all that are translated together."""
    found = detect(" ".join(texts), stores.sources())
    if not found:
        raise RequestError(HTTPStatus.BAD_REQUEST, "The language cannot be detected: give the source parameter.")
    return [found[0]] * len(texts)


def _accepts(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    kinds = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data")
    return {"requestBody": {"required": True, "content": {kind: {"schema": schema} for kind in kinds}}}
