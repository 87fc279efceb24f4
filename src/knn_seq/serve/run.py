"""Run a server until it is told to stop."""

from __future__ import annotations

import logging
from pathlib import Path

from knn_seq.serve.settings import ServerSettings

log = logging.getLogger(__name__)


def serve(named: dict[str, Path], settings: ServerSettings) -> None:
    """Serve datastores; returns when the process is told to stop, and what runs is finished.

    Args:
        named: The datastores' folders by their names.
        settings: Where, for whom and how much.
    """
    import uvicorn

    from knn_seq.serve.app import make_app
    from knn_seq.serve.stores import Stores

    stores = Stores.open(named, settings)
    for each in stores:
        log.info("%s: %s to %s, %d entries", each.name, each.source, each.target, len(each.store))
    log.info("http://%s:%d/", settings.host, settings.port)
    uvicorn.Server(
        uvicorn.Config(
            make_app(stores, settings),
            host=settings.host,
            port=settings.port,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=int(settings.shutdown_seconds),
        )
    ).run()
