"""Milvus: keys on a server, or in a file of Milvus Lite."""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knn_seq.errors import DamagedFile, IndexUnavailable, InvalidSetting, NotFound
from knn_seq.index.base import INDEXES, SearchIndex
from knn_seq.index.milvus_library.recipe import (
    DEFAULT_KIND,
    LITE_KINDS,
    LITE_SUFFIX,
    MilvusRecipe,
    build_parameters,
    search_parameters,
)
from knn_seq.index.milvus_library.server import ADDRESS, ANSWER_SECONDS, MilvusServer, address_from_environment, library
from knn_seq.index.on_server import OnServer
from knn_seq.registry import Option

ID, KEY = "id", "key"  # the fields of a collection
MILVUS_METRICS = {"l2": "L2", "ip": "IP", "cosine": "IP"}  # keys and queries have length one if it is the cosine
MESSAGE_BYTES = 16 << 20  # of keys or queries in one message; servers take at least 64 MiB
MOST_QUERIES = MOST_NEIGHBOURS = 16384  # of one search
MOST_HITS = 1 << 20  # of one search: an answer of some 16 MB
IDS_AT_ONCE = 4096
LITE_BYTES = 256 << 20  # Milvus Lite compares by an array of queries × keys × dimension
LITE_SEGMENT = 1 << 17  # keys that it compares at a time, about
BUILD_RETRY_SECONDS = 60.0  # that a build waits for a server that stopped answering


@INDEXES.register("milvus")
class MilvusIndex(SearchIndex, OnServer):
    """An index of a Milvus server, the optional extra `milvus` of this package.

    Keys and ids lie in a collection of their own; what is saved is its address and name.  Nothing is connected before
    it is needed.  The server's user or token comes from KNN_SEQ_MILVUS_TOKEN, or a file that KNN_SEQ_MILVUS_TOKEN_FILE
    names, and is never stored.

    Args:
        dimension: Of keys and queries.
        metric: "l2", "ip" or "cosine".
        recipe: "IVF_PQ(nlist=1024,m=64)@http://127.0.0.1:19530" or the like: any kind of index that the server offers,
            those of its parameters that matter, and its address, or a file that ends in .db for Milvus Lite.  Without
            an address KNN_SEQ_MILVUS_ADDRESS says it, also when the index is opened again.
        **options: Those of `declared_options`.
    """

    declared_options = {
        "nprobe": Option(32, "inverted lists that a query visits", int, 1),
        "ef_search": Option(128, "candidates that a search keeps in a graph", int, 1),
    }
    file_name = "index.milvus"

    def __init__(self, dimension: int, metric: str = "l2", recipe: str | None = None, **options: Any) -> None:
        super().__init__(dimension, metric, recipe or DEFAULT_KIND, **options)
        self._parsed = MilvusRecipe.parse(str(self.recipe))
        self._address = self._parsed.address
        self._collection = f"knn_seq_{secrets.token_hex(8)}"
        self._entries, self._largest = 0, -1  # how many there are, and the largest id
        self._parameters: dict[str, Any] | None = None  # what the server was told to build; None: nothing yet
        self._fresh = True  # the collection is not made yet
        self._checked = True  # it fits what was saved
        self._ready = False  # everything is in the server's index and can be searched
        self._changed = False  # entries came or went since the last search, which the next has to see
        self._connection: MilvusServer | None = None
        self._path: Path | None = None

    def __len__(self) -> int:
        return self._entries

    @property
    def memory(self) -> int:
        """Of this process: next to nothing, unless Milvus Lite runs in it."""
        return self.expected_memory(self._entries)

    def expected_memory(self, entries: int) -> int:
        """The keys are the server's; only Milvus Lite holds them in this process."""
        address = self._address or address_from_environment() or ""
        return super().expected_memory(entries) if address.endswith(LITE_SUFFIX) else 0

    @classmethod
    def recipe_for(cls, entries: int, dimension: int, metric: str = "l2", memory: int | None = None) -> str | None:
        """A graph, which also Milvus Lite builds."""
        return DEFAULT_KIND

    def training_size(self, entries: int) -> int:
        """One key: "training" finds the server and chooses the collection's name, which a build saves before it adds.

        So a build that is killed while it adds finds the collection again, and makes it anew.
        """
        return 1

    def _train(self, sample: Tensor) -> None:
        self._server()

    def _add(self, keys: Tensor, ids: Tensor) -> None:
        numbers = ids.numpy()
        if len(np.unique(numbers)) < len(numbers) or self._has_some_of(numbers):
            raise InvalidSetting(
                "An id is given twice, or the index has it already: give every entry an id of its own."
            )
        server = self._made()
        rows = keys.cpu().numpy()
        for part in _parts(len(rows), MESSAGE_BYTES // (4 * self.dimension)):
            self._insert(server, rows[part], numbers[part])
            self._entries += len(numbers[part])
            self._largest = max(self._largest, int(numbers[part].max()))
        self._ready, self._changed = False, True

    def _insert(self, server: MilvusServer, rows: NDArray[np.float32], ids: NDArray[np.int64]) -> None:
        data = [{ID: number, KEY: row} for number, row in zip(ids.tolist(), rows, strict=True)]
        doing = f"add keys to the collection {self._collection}"
        try:
            server.ask("insert", self._collection, data, doing=doing, retry_seconds=0.0, retry_times=0)
        except IndexUnavailable:  # it may have added them all the same: what is sent again has to replace them
            server.ask("upsert", self._collection, data, doing=doing, retry_seconds=BUILD_RETRY_SECONDS)

    def _remove(self, ids: Tensor) -> None:
        there = self._those_of(ids.numpy())
        for part in _parts(len(there), IDS_AT_ONCE):
            some = there[part].tolist()
            self._server().ask("delete", self._collection, ids=some, doing="remove entries")
            self._entries, self._changed = self._entries - len(some), True

    def forget(self, ids: NDArray[np.int64]) -> None:
        """See `OnServer.forget`."""
        for part in _parts(len(ids), IDS_AT_ONCE):
            self._server().ask("delete", self._collection, ids=ids[part].tolist(), doing="remove entries")

    @property
    def growable(self) -> bool:
        """Whether its ids are the places of its entries; the server takes more of them at any time."""
        return self._entries == self._largest + 1

    def _search(self, queries: Tensor, k: int, options: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        server = self._searchable()
        rows = np.ascontiguousarray(queries.cpu().numpy())
        possible = min(k, MOST_NEIGHBOURS)
        parameters = search_parameters(self._parsed.kind, self._parameters or {}, k=possible, **options)
        distances, ids = np.full((len(rows), k), np.inf, np.float32), np.full((len(rows), k), -1)
        for part in _parts(len(rows), self._queries_at_once(server.lite, possible)):
            ask = partial(self._ask, server, list(rows[part]), possible, parameters)
            found = ask("")
            if max((max(hits.ids, default=-1) for hits in found), default=-1) > self._largest:
                found = ask(f"{ID} <= {self._largest}")  # others were added, of a generation that is not searched here
            for row, hits in enumerate(found, part.start):
                distances[row, : len(hits)], ids[row, : len(hits)] = hits.distances, hits.ids
        self._changed = False
        if self.metric != "l2":  # Milvus has inner products; its Euclidean distances are squared, as ours
            distances[ids >= 0] *= -1
        return torch.from_numpy(distances + (self.metric == "cosine")), torch.from_numpy(ids)

    def _ask(self, server: MilvusServer, rows: list[Any], k: int, parameters: dict[str, Any], chosen: str) -> Any:
        return server.ask(
            "search",
            self._collection,
            rows,
            filter=chosen,
            limit=k,
            anns_field=KEY,
            search_params={"metric_type": MILVUS_METRICS[self.metric], "params": parameters},
            consistency_level="Strong" if self._changed else "Eventually",
            timeout=ANSWER_SECONDS,
            doing="search",
        )

    def _queries_at_once(self, lite: bool, k: int) -> int:
        most = min(MOST_QUERIES, MESSAGE_BYTES // (4 * self.dimension), MOST_HITS // k)
        if lite and self._parsed.kind == "FLAT":
            most = min(most, LITE_BYTES // (4 * self.dimension * min(self._entries, LITE_SEGMENT)))
        return most

    def _save(self, path: Path) -> None:
        if self._entries or not self._fresh:
            self._require_complete(self._searchable(), path)
        facts = {
            "address": self._server().address,
            "collection": self._collection,
            "entries": self._entries,
            "largest_id": self._largest,
            "parameters": self._parameters,
            "dimension": self.dimension,
            "metric": self.metric,
            "recipe": self.recipe,
        }
        path.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")

    def _load(self, path: Path) -> None:
        facts = _facts(path)
        for name in ("dimension", "metric", "recipe"):
            if facts[name] != getattr(self, name):
                raise DamagedFile(
                    f"{path} is of {name} {facts[name]}, not {getattr(self, name)}: build the index again."
                )
        # A recipe without an address follows the environment, should the server have moved.
        self._address = self._parsed.address or address_from_environment() or facts["address"]
        if self._parsed.address is not None and self._parsed.address.endswith(LITE_SUFFIX):
            self._address = facts["address"]  # a relative path was meant from where the index was built
        self._collection, self._parameters = facts["collection"], facts["parameters"]
        self._entries, self._largest = facts["entries"], facts["largest_id"]
        self._fresh, self._checked, self._path = self._entries == 0, self._entries == 0, path
        self._changed = True  # whoever has just added entries is another, perhaps

    @classmethod
    def delete_external(cls, folder: Path, in_use_by: Collection[Path] = ()) -> None:
        """Drop the collection, unless an index in one of the folders `in_use_by` has the same."""
        path = folder / cls.file_name
        facts = _facts(path)
        others = (other for used in in_use_by for other in used.rglob(cls.file_name))
        if any(_facts(other)["collection"] == facts["collection"] for other in others):
            return
        index = cls(facts["dimension"], facts["metric"], facts["recipe"])
        index._load(path)
        try:
            MilvusServer(str(index._address)).ask(
                "drop_collection", index._collection, doing="drop it", retry_seconds=0.0
            )
        except IndexUnavailable as error:
            raise IndexUnavailable(f"The collection {index._collection} stays where it is, for {error}") from error

    def _server(self) -> MilvusServer:
        """The server, which answers and builds such indexes; what was saved has to fit its collection."""
        if self._connection is None:
            self._address = self._address or address_from_environment()
            if self._address is None:
                raise InvalidSetting(
                    f"The recipe '{self.recipe}' has no address: write {self._parsed.kind}@http://HOST:PORT, "
                    f"or set {ADDRESS}."
                )
            server = MilvusServer(self._address)
            if server.lite and self._parsed.kind not in LITE_KINDS:
                raise InvalidSetting(f"Milvus Lite builds no {self._parsed.kind}: choose from {', '.join(LITE_KINDS)}.")
            self._connection = server
        if not self._checked:
            self._check(self._connection)
        return self._connection

    def _check(self, server: MilvusServer) -> None:
        if not server.ask("has_collection", self._collection, doing="find a collection"):
            raise NotFound(
                f"The collection {self._collection} that {self._path} names is not there any more in {server}: "
                "build the index again."
            )
        self._load_collection(server)
        if self.writable:  # a build resumes: what it added after it had saved will be added once more
            beyond = f"{ID} > {self._largest}"
            server.ask("delete", self._collection, filter=beyond, doing="remove entries")
        self._require_complete(server, self._path)
        self._checked = self._ready = True

    def _require_complete(self, server: MilvusServer, path: Path | None) -> None:
        answer = server.ask(
            "query",
            self._collection,
            filter=f"{ID} <= {self._largest}",  # a fold that was killed, or has not ended, may have added others
            output_fields=["count(*)"],
            consistency_level="Strong",
            doing="count entries",
        )
        there = int(answer[0]["count(*)"])
        if not self._entries - self.lacking <= there <= self._entries:
            raise DamagedFile(
                f"The collection {self._collection} that {path} names has {there:,} entries instead of "
                f"{self._entries:,}: build the index again."
            )

    def _made(self) -> MilvusServer:
        """The server, with a collection to add to."""
        server = self._server()
        if self._fresh:
            milvus = library()
            schema = milvus.MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
            schema.add_field(ID, milvus.DataType.INT64, is_primary=True)
            schema.add_field(KEY, milvus.DataType.FLOAT_VECTOR, dim=self.dimension)
            doing = f"make the collection {self._collection}"
            # One of a build that was killed; that there is none is no error.
            server.ask("drop_collection", self._collection, doing=doing)
            server.ask("create_collection", self._collection, schema=schema, doing=doing, waiting=False)
            self._fresh = False
        return server

    def _searchable(self) -> MilvusServer:
        """The server, with all entries in its index."""
        server = self._made()
        if not self._ready:
            if self._parameters is None:
                parsed = self._parsed
                self._parameters = build_parameters(parsed.kind, parsed.parameters, self._entries, self.dimension)
            server.ask("flush", self._collection, doing="store entries", retry_seconds=BUILD_RETRY_SECONDS)
            self._build(server)
            self._load_collection(server)
            self._ready = True
        return server

    def _build(self, server: MilvusServer) -> None:
        if server.lite and server.ask("list_indexes", self._collection, doing="find its index"):
            return  # what was added is in it; a server is asked once more, for then it waits until it is
        kind, index = self._parsed.kind, library().MilvusClient.prepare_index_params()
        # pymilvus puts the parameters among the others, where Milvus Lite does not look for them.
        parameters = {"params": self._parameters} if server.lite else self._parameters
        index.add_index(KEY, index_type=kind, metric_type=MILVUS_METRICS[self.metric], params=parameters)
        server.ask("create_index", self._collection, index, doing=f"build an index {kind}", waiting=False)

    def _load_collection(self, server: MilvusServer) -> None:
        server.ask("load_collection", self._collection, doing="load a collection", waiting=False)

    def _has_some_of(self, ids: NDArray[np.int64]) -> bool:
        return bool(len(ids) and self._entries and ids.min() <= self._largest and len(self._those_of(ids)))

    def _those_of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those of the ids that are in the index."""
        if not self._entries:
            return ids[:0]
        server, there = self._searchable(), list[Any]()
        possible = ids[(ids >= 0) & (ids <= self._largest)]
        for part in _parts(len(possible), IDS_AT_ONCE):
            there += server.ask(
                "query",
                self._collection,
                filter=f"{ID} in {possible[part].tolist()}",
                output_fields=[ID],
                consistency_level="Strong",
                doing="look for entries",
            )
        return np.array([row[ID] for row in there], np.int64)


def _parts(rows: int, most: int) -> Iterator[slice]:
    step = max(most, 1)
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def _facts(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        known = {name: facts[name] for name in ("address", "collection", "entries", "largest_id", "parameters")}
        return {**known, **{name: facts[name] for name in ("dimension", "metric", "recipe")}}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedFile(f"{path} does not describe an index of Milvus: build the index again.") from error
