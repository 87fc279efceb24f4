"""A Milvus server, asked again when it does not answer."""

from __future__ import annotations

import logging
import os
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from knn_seq.errors import IndexUnavailable, KnnSeqError, MissingLibrary, NotFound
from knn_seq.index.milvus_library.recipe import LITE_SUFFIX, address_of

ADDRESS, TOKEN, TOKEN_FILE = "KNN_SEQ_MILVUS_ADDRESS", "KNN_SEQ_MILVUS_TOKEN", "KNN_SEQ_MILVUS_TOKEN_FILE"
CONNECT_SECONDS = 3.0
ANSWER_SECONDS = 30.0  # until a search that was sent counts as not answered
RETRY_SECONDS = 8.0  # over which a server that stopped answering is asked again
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 2.0
# A request that the server understood and refused is refused again.
_REFUSED_BY_GRPC = {"UNAUTHENTICATED", "PERMISSION_DENIED", "INVALID_ARGUMENT", "UNIMPLEMENTED"}
_REFUSED = {100, 700, 1100, 1400, 1700}  # no such collection, no such index, bad parameter, user or field
_NO_ANSWER = {1, 2, 5, 8, 101, 103, 106, 503, 901}  # not ready, does not answer, too many requests, loading, recovering
_NOT_LOADED = 101
_FROM_THE_SERVER = {"MilvusException", "ConnectError", "MilvusUnavailableException"}  # all others are pymilvus's own
_PINGS = "Too many pings"
_UNKNOWN_USER = {"UNAUTHENTICATED", "PERMISSION_DENIED"}


class MilvusServer:
    """A connection, opened with the first question.

    Args:
        address: http://HOST:PORT, or the path of a file of Milvus Lite.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._client: Any = None
        self._lite = address.endswith(LITE_SUFFIX)
        self._unanswered = False  # it did not answer the last time, so it is asked once and not waited for

    def __str__(self) -> str:
        return f"Milvus {'Lite in' if self.address.endswith(LITE_SUFFIX) else 'at'} {self.address}"

    @property
    def lite(self) -> bool:
        """Whether it is Milvus Lite, which builds few kinds of index and reads their parameters elsewhere."""
        self._connect()
        return self._lite

    def ask(
        self,
        method: str,
        *arguments: Any,
        doing: str,
        waiting: bool = True,
        retry_seconds: float | None = None,
        **named: Any,
    ) -> Any:
        """What the server answers.

        Args:
            method: Of pymilvus.MilvusClient.
            *arguments: Its arguments.
            doing: What it is for, to be read behind "cannot".
            waiting: Whether any failure but a refusal is worth asking again, not only that of the connection.
            retry_seconds: Seconds over which it is asked again; None: the default, and 0 if it did not answer before.
            **named: Its other arguments.
        """
        if retry_seconds is None:
            retry_seconds = 0.0 if self._unanswered else RETRY_SECONDS
        end, pause, loaded = time.monotonic() + retry_seconds, FIRST_PAUSE, False
        while True:
            try:
                answer = getattr(self._connect(), method)(*arguments, **named)
            except Exception as error:
                if not _from_milvus(error):
                    raise
                if _refused(error) or not (waiting or _stopped_answering(error)):
                    raise KnnSeqError(f"{self} cannot {doing}: {_reason(error)}.") from error
                if getattr(error, "code", None) == _NOT_LOADED and not loaded:
                    loaded = True  # a server that was started again does not always do so by itself
                    self._load(str(arguments[0]))
                    continue
                if time.monotonic() + pause > end:
                    self._unanswered = True
                    raise IndexUnavailable(
                        f"{self} does not answer ({_reason(error)}): see that it runs and can be reached."
                    ) from error
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                self._unanswered = False
                return answer

    def _load(self, collection: str) -> None:
        try:
            self._connect().load_collection(collection)
        except Exception as error:
            if not _from_milvus(error):
                raise

    def _connect(self) -> Any:
        if self._client is None:
            library()  # or a sentence says how to get it
            try:
                client = self._new_client()
                self._lite = client.get_server_version(timeout=CONNECT_SECONDS).startswith("milvus_lite")
            except Exception as error:
                if not _from_milvus(error):
                    raise
                self._unanswered = True
                raise self._not_connected(error) from error
            self._client = client
        return self._client

    def _new_client(self) -> Any:
        milvus = library()
        named = {"uri": self.address, "token": _token(), "timeout": CONNECT_SECONDS, "dedicated": True}
        try:
            return milvus.MilvusClient(**named)
        except Exception as error:
            if _PINGS not in str(error.__cause__):
                raise
            # Milvus Lite closes a connection that was idle for minutes, which clients in one process share.
            return milvus.MilvusClient(**named)

    def _not_connected(self, error: Exception) -> KnnSeqError:
        if self.address.endswith(LITE_SUFFIX):
            folder = Path(self.address).parent
            if not folder.is_dir():
                return NotFound(f"{self} cannot be opened: there is no folder {folder}.")
            return IndexUnavailable(f"{self} cannot be opened: only one process can at a time, is another at it?")
        if _grpc_code(error) in _UNKNOWN_USER or "auth" in _reason(error).lower():
            if _token():
                return KnnSeqError(f"{self} refuses the token that {TOKEN} or {TOKEN_FILE} gives: correct it.")
            return KnnSeqError(f"{self} wants a user or a token: set {TOKEN} or {TOKEN_FILE}.")
        return IndexUnavailable(f"{self} does not answer: see that it runs there, or give its right address.")


def address_from_environment() -> str | None:
    """The address that holds for recipes without one."""
    given = os.environ.get(ADDRESS)
    return address_of(given) if given else None


def _token() -> str:
    """USER:PASSWORD or an API key, which is never stored; empty: none is needed."""
    file = os.environ.get(TOKEN_FILE)
    if os.environ.get(TOKEN) or not file:
        return os.environ.get(TOKEN, "")
    try:
        return Path(file).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise NotFound(f"The file {file} that {TOKEN_FILE} names cannot be read ({error}).") from error


def library() -> Any:
    """The module pymilvus, which logs nothing by itself."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # or gRPC would write to standard error about a server that is down
    try:
        milvus = import_module("pymilvus")
    except ImportError as error:
        raise MissingLibrary("The library pymilvus is missing: pip install knn-seq[milvus].") from error
    for name in ("pymilvus", "milvus_lite", "grpc._server"):  # their errors reach us as exceptions
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    return milvus


def _from_milvus(error: Exception) -> bool:
    return isinstance(error, (import_module("pymilvus").MilvusException, import_module("grpc").RpcError))


def _grpc_code(error: BaseException | None) -> str | None:
    """The name of gRPC's code of this error, or of the one that it comes from."""
    for _ in range(8):  # pymilvus names some errors as their own cause
        code = getattr(error, "code", None)
        code = code() if callable(code) else code
        if isinstance(code, import_module("grpc").StatusCode):
            return str(code.name)
        error = getattr(error, "__cause__", None)
    return None


def _refused(error: Exception) -> bool:
    by_grpc = _grpc_code(error)
    if by_grpc is not None:
        return by_grpc in _REFUSED_BY_GRPC
    by_pymilvus = type(error).__name__ not in _FROM_THE_SERVER
    return by_pymilvus or getattr(error, "code", None) in _REFUSED or bool(getattr(error, "is_input_error", False))


def _stopped_answering(error: Exception) -> bool:
    known = getattr(error, "code", None) in _NO_ANSWER or bool(getattr(error, "retriable", False))
    return known or _grpc_code(error) is not None


def _reason(error: Exception) -> str:
    """What the error says, short and without what only a programmer would read."""
    text = getattr(error, "message", None) or (error.details() if hasattr(error, "details") else "") or str(error)
    first = str(text).strip().splitlines()[0] if str(text).strip() else type(error).__name__
    return first[:200].rstrip(". ")
