"""Who may do what, and how often: API keys, of which only hashes are kept."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from knn_seq.errors import DamagedFile, InvalidSetting, NotFound
from knn_seq.serve.errors import RequestError, bad_request
from knn_seq.serve.settings import ROLES
from knn_seq.storage.atomic import read_json, write_json

MINUTE = 60.0
CLIENTS = 10_000  # whose requests are counted at a time


@dataclass(frozen=True)
class Key:
    """A key of the file: what it permits."""

    name: str
    hash: str  # SHA-256 of the key: keys are random and long, so nothing slower is needed
    role: str = "translate"
    requests_a_minute: int | None = None  # None: any number


EVERYONE = Key("everyone", "", "admin")


class KeyFile:
    """The API keys of a server: a JSON file that has names, roles and hashes, and no key.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read: tuple[int, list[Key]] | None = None

    @property
    def keys(self) -> list[Key]:
        """The keys, as they are in the file now."""
        try:
            changed = self.path.stat().st_mtime_ns
            if self._read is None or self._read[0] != changed:
                self._read = changed, [_key(entry) for entry in read_json(self.path)["keys"]]
            return self._read[1]
        except FileNotFoundError as error:
            raise NotFound(f"There is no file {self.path}: make it with `knn-seq api-key`.") from error
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedFile(f"{self.path} is no file of API keys: {error}.") from error

    def add(self, name: str, role: str, requests_a_minute: int | None = None) -> str:
        """Make a key; it is returned, and kept nowhere."""
        if role not in ROLES:
            raise InvalidSetting(f"There is no role '{role}': choose from {', '.join(ROLES)}.")
        known = self.keys if self.path.exists() else []
        if any(key.name == name for key in known):
            raise InvalidSetting(f"There is a key called '{name}' already: remove it first.")
        secret = secrets.token_urlsafe(32)
        self._write([*known, Key(name, hash_of(secret), role, requests_a_minute)])
        return secret

    def remove(self, name: str) -> None:
        """Take a key out; from the next request on it is not valid any more."""
        left = [key for key in self.keys if key.name != name]
        if len(left) == len(self.keys):
            raise InvalidSetting(f"There is no key called '{name}' in {self.path}.")
        self._write(left)

    def find(self, secret: str) -> Key | None:
        """The key that this is; every one is compared, so that the time tells nothing."""
        given, found = hash_of(secret), None
        for key in self.keys:
            if hmac.compare_digest(key.hash, given):
                found = key
        return found

    def _write(self, keys: list[Key]) -> None:
        write_json(self.path, {"keys": [vars(key) for key in keys]})
        self.path.chmod(0o600)
        self._read = None


class Access:
    """Decides whether a request is answered.

    Args:
        keys: The file of keys; None: nobody needs one.
    """

    def __init__(self, keys: KeyFile | None) -> None:
        self.keys = keys
        self._times: OrderedDict[str, list[float]] = OrderedDict()  # of the last minute's requests of each key

    def check(self, secret: str | None, role: str) -> Key:
        """The key of a request; raises a `RequestError` if it may not do what it asks for.

        Args:
            secret: What the client sent.
            role: What is needed.
        """
        if self.keys is None:
            return EVERYONE
        if not secret:
            raise bad_request("This server needs an API key: send it as api_key.")
        key = self.keys.find(secret)
        if key is None:
            raise RequestError(HTTPStatus.FORBIDDEN, "That is not a valid API key.")
        if ROLES.index(key.role) < ROLES.index(role):
            raise RequestError(HTTPStatus.FORBIDDEN, f"This API key is for '{key.role}', and '{role}' is needed.")
        self._count(key)
        return key

    def _count(self, key: Key) -> None:
        if key.requests_a_minute is None:
            return
        now = time.monotonic()
        times = [since for since in self._times.pop(key.hash, []) if now - since < MINUTE]
        self._times[key.hash] = times
        while len(self._times) > CLIENTS:
            self._times.popitem(last=False)
        if len(times) >= key.requests_a_minute:
            wait = max(int(MINUTE - (now - times[0])) + 1, 1)
            raise RequestError(HTTPStatus.TOO_MANY_REQUESTS, f"Slow down: try again in {wait} seconds.", wait)
        times.append(now)


def hash_of(secret: str) -> str:
    """What is kept of a key."""
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


def _key(entry: dict[str, Any]) -> Key:
    key = Key(**entry)
    if key.role not in ROLES or not all(isinstance(text, str) for text in (key.name, key.hash)):
        raise ValueError(f"the key {key.name!r} is not as it should be")
    return key
