from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from knn_seq.errors import InvalidSetting

ENGINES = ("local", "ray")
ROLES = ("translate", "edit", "admin")  # of API keys; each may do what those before it may


@dataclass(frozen=True)
class ServerSettings:
    """Where a server listens, whom it answers and how much it takes on."""

    host: str = "127.0.0.1"
    port: int = 5000  # LibreTranslate's, which its clients know
    workers: int = 1  # processes, or replicas on Ray
    engine: str = "local"  # "local": processes of this machine; "ray": replicas of Ray Serve
    ray_address: str | None = None  # of a Ray cluster; None: Ray is started on this machine
    api_keys: Path | None = None  # the file of keys; None: everyone who reaches the server may do everything
    open: bool = False  # let others than this machine use it without keys
    cors_origins: tuple[str, ...] = ()  # pages of other servers that may use the API; "*": all
    largest_text: int = 20_000  # characters of a request
    largest_batch: int = 128  # texts of a request
    largest_upload: int = 32 << 20  # bytes of a file
    largest_body: int = 1 << 20  # bytes of any other request
    queue_size: int = 1024  # sentences that wait; more are refused
    batch_size: int = 32  # sentences that are translated together
    request_seconds: float = 120.0  # after which a request is given up
    shutdown_seconds: float = 30.0  # for requests that run when the server is to stop
    jobs_folder: Path | None = None  # where files of clients lie while they are worked on; None: a temporary folder

    def __post_init__(self) -> None:
        largest = ("largest_text", "largest_batch", "largest_upload", "largest_body")
        for name in ("workers", *largest, "queue_size", "batch_size"):
            if getattr(self, name) < 1:
                raise InvalidSetting(f"{name.replace('_', '-')} must be at least 1, not {getattr(self, name)}.")
        if self.engine not in ENGINES:
            raise InvalidSetting(f"There is no engine '{self.engine}' to serve with: choose from {', '.join(ENGINES)}.")
        if not 0 <= self.port < 1 << 16:
            raise InvalidSetting(f"A port lies between 0 and 65535: {self.port} does not.")
        if self.api_keys is None and not self.open and not is_loopback(self.host):
            raise InvalidSetting(
                f"On {self.host} everyone in the network could read and change the datastores: "
                "give --api-keys, or --open if that is meant."
            )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens there."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
