"""What the things that an index does cost on one machine, and so what all of them take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

from knn_seq.errors import InvalidSetting
from knn_seq.plan.cost.job import Job, Search

SERIAL = ("call", "fetch", "write", "merge")  # what more cores do not make faster


@dataclass(frozen=True)
class Costs:
    """Seconds of one core for each thing that is done; those in `SERIAL` are of the complete machine."""

    cluster: float = 0.0  # a multiplication while k-means compares the sample with the lists
    rotate: float = 0.0  # a multiplication of a key with a rotation that is learned, in all rounds of it
    learn: float = 0.0  # a number of a key and a code word, while codes are learned
    multiply: float = 0.0  # a multiplication of many keys with a transform, or with the lists
    step: float = 0.0  # a number of a key, for every doubling of a graph that finds its place
    encode: float = 0.0  # a number of a key and a code word
    call: float = 0.0  # a search, however large
    load: float = 0.0  # a byte of codes or centroids that comes from memory, once for a batch
    compare: float = 0.0  # a multiplication of a query with a list
    walk: float = 0.0  # a number of a query, for every doubling of a graph
    visit: float = 0.0  # a code word of a list that a query visits
    scan: float = 0.0  # a byte of codes
    rank: float = 0.0  # a number of a candidate's stored key
    locate: float = 0.0  # a candidate, for every doubling of the keys among which it lies
    fetch: float = 0.0  # a stored key, or a piece of a list, that comes from the disk
    merge: float = 0.0  # a byte of a part that is read and merged
    write: float = 0.0  # a byte

    def seconds(self, work: Mapping[str, float], cores: int = 1) -> float:
        """What some work takes on so many cores."""
        known: dict[str, float] = asdict(self)
        return sum(known[name] * count / (1 if name in SERIAL else cores) for name, count in work.items())

    def training(self, job: Job, cores: int) -> float:
        """Seconds to train the index; workers do not help."""
        return self.seconds(job.training(), cores)

    def adding(self, job: Job, cores: int, workers: int = 1) -> float:
        """Seconds to add all keys, shared out among workers of so many cores each."""
        return self.seconds(job.adding(), cores) / workers

    def merging(self, job: Job) -> float:
        """Seconds to merge the parts of the index; workers do not help."""
        return self.seconds(job.merging())

    def writing(self, size: float) -> float:
        """Seconds to write so many bytes."""
        return self.seconds({"write": size})

    def searching(self, job: Job, search: Search, cores: int) -> float:
        """Seconds that a batch of queries waits for its neighbours."""
        return self.seconds(job.searching(search, cores))

    def known(self, names: Mapping[str, float]) -> Costs:
        """These, with some of them replaced."""
        return Costs(**{**asdict(self), **names})

    @classmethod
    def from_dict(cls, data: Mapping[str, float]) -> Costs:
        """What `asdict` made, read again."""
        names = {field.name for field in fields(cls)}
        if set(data) != names:
            raise InvalidSetting(f"These are not the costs of an index: expected {', '.join(sorted(names))}.")
        return cls(**data)
