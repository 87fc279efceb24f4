"""An index of a Milvus server in one word: KIND(parameter=value,...)@ADDRESS."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from knn_seq.errors import InvalidSetting
from knn_seq.index.recipe import lists_for
from knn_seq.settings import require_no_password

DEFAULT_KIND = "HNSW"
# Milvus Lite takes the names of others, too, and then builds nothing.
LITE_KINDS = ("FLAT", "IVF_FLAT", "IVF_SQ8", "HNSW", "HNSW_SQ")
LITE_SUFFIX = ".db"
MOST_LISTS = 65536  # of an index of Milvus
SUBSPACE = 4  # dimensions of a key that one byte stands for: IVF_PQ's m
_RECIPE = re.compile(r"(?P<kind>[A-Za-z]\w*)?(?:\((?P<parameters>[^()]*)\))?(?:@(?P<address>.+))?", re.ASCII)
_SCHEMES = ("http://", "https://", "tcp://", "unix:")


class MilvusRecipe(NamedTuple):
    """What is built, and where."""

    kind: str  # in the server's words: IVF_PQ, HNSW ...
    parameters: dict[str, Any]  # those that were given
    address: str | None  # of a server, or the path of a file of Milvus Lite; None: the environment says it

    @classmethod
    def parse(cls, text: str) -> MilvusRecipe:
        """ "IVF_PQ(nlist=1024,m=64)@http://127.0.0.1:19530" and the like; each part may be left out."""
        match = _RECIPE.fullmatch(text)
        if match is None:
            shown = text.partition("@")[0]  # no more: there may be a password behind it
            raise InvalidSetting(
                f"'{shown}' is no index of Milvus: write KIND(parameter=value,...)@ADDRESS, "
                "such as IVF_PQ(nlist=1024,m=64)@http://127.0.0.1:19530."
            )
        address = match["address"]
        parameters = (part for part in (match["parameters"] or "").split(",") if part.strip())
        return cls(
            (match["kind"] or DEFAULT_KIND).upper(),
            dict(map(_parameter, parameters)),
            None if address is None else address_of(address),
        )


def address_of(text: str) -> str:
    """The address as it is stored: the path of a Milvus Lite file from the root on; one with a password is refused."""
    if text.startswith(_SCHEMES):
        require_no_password(text)
        return text
    if text.endswith(LITE_SUFFIX):
        return str(Path(text).expanduser().absolute())
    shown = text.rpartition("@")[2]
    raise InvalidSetting(
        f"'{shown}' is no address of Milvus: give http://HOST:PORT, or a file that ends in .db for Milvus Lite."
    )


def build_parameters(kind: str, given: Mapping[str, Any], entries: int, dimension: int) -> dict[str, Any]:
    """All parameters that the server needs to build an index of so many keys: those given, and sensible others."""
    defaults: dict[str, Any] = {}
    if "IVF" in kind or kind == "SCANN":
        defaults["nlist"] = min(lists_for(entries), MOST_LISTS)
    if kind.endswith("IVF_PQ"):
        defaults |= {"m": _subspaces(dimension), "nbits": 8}
    if kind.startswith("HNSW"):
        defaults |= {"M": 32, "efConstruction": 200}
    return {**defaults, **given}


def search_parameters(kind: str, built: Mapping[str, Any], nprobe: int, ef_search: int, k: int) -> dict[str, Any]:
    """What a search for k entries tells the server."""
    if "nlist" in built:
        return {"nprobe": min(nprobe, int(built["nlist"]))}
    if kind.startswith("HNSW"):
        return {"ef": max(ef_search, k)}
    if kind == "DISKANN":
        return {"search_list": max(ef_search, k)}
    return {}


def _subspaces(dimension: int) -> int:
    """The largest divisor of the dimension that gives each byte of a code at least so many numbers to stand for."""
    return max((m for m in range(1, dimension // SUBSPACE + 1) if dimension % m == 0), default=1)


def _parameter(text: str) -> tuple[str, Any]:
    name, equals, value = (part.strip() for part in text.partition("="))
    if not (name and equals and value):
        raise InvalidSetting(f"'{text.strip()}' is no parameter of a Milvus index: write nlist=1024 or the like.")
    if value.lower() in ("true", "false"):
        return name, value.lower() == "true"
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, value
