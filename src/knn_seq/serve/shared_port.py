"""The port of a server; worker processes share it, and connections are spread over them.

Of one queue of connections, that process takes the most which happens to run; on a machine whose cores are all at work
it may take all.  Where the system can, each process has a queue of its own, and the system chooses at random.
"""

from __future__ import annotations

import socket
import sys
from typing import Any

from knn_seq.errors import InvalidSetting


class SpreadSocket(socket.socket):
    """A socket that is bound and takes no connections: in a process that it is sent to, another one that can."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        """What another process makes of it."""
        return spread_socket, self.getsockname()[:2]


def bound_socket(host: str, port: int, processes: int = 1) -> socket.socket:
    """The socket of a server; an `InvalidSetting` if it cannot listen there.

    Args:
        host: The address.
        port: The port.
        processes: Those that are given the socket.
    """
    try:
        alone = _bound(socket.socket(_family(host)), host, port)
        if processes == 1 or sys.platform != "linux":  # elsewhere one of several sockets gets all connections
            alone.set_inheritable(True)
            return alone
        alone.close()
        return spread_socket(host, port)
    except OSError as error:
        raise InvalidSetting(f"Cannot listen at {host}, port {port}: {error.strerror}.") from None


def spread_socket(host: str, port: int) -> SpreadSocket:
    """One of several sockets for the same port.

    Args:
        host: The address.
        port: The port.
    """
    made = SpreadSocket(_family(host))
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    _bound(made, host, port)
    return made


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _bound(made: socket.socket, host: str, port: int) -> socket.socket:
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((host, port))
    return made
