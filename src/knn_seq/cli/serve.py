"""`knn-seq serve`: an HTTP server."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "serve datastores: LibreTranslate's HTTP API, an API of our own, and a page"
EXAMPLE = "knn-seq serve store/ law=other-store/ --port 5000"
LIMITS = {
    "largest_text": "characters of a request",
    "largest_batch": "texts of a request",
    "largest_upload": "bytes of a file",
    "queue_size": "sentences that wait; more are refused",
    "batch_size": "sentences that are translated together",
    "request_seconds": "seconds after which a request is given up",
    "shutdown_seconds": "seconds for requests that run when the server is to stop",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    from knn_seq.serve.settings import ENGINES, ServerSettings

    parser.add_argument("stores", nargs="+", metavar="STORE", help="a datastore's folder, or NAME=FOLDER")
    parser.add_argument("--host", default=ServerSettings.host, help="the address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=ServerSettings.port, help="the port (default: %(default)s)")
    parser.add_argument("--api-keys", type=Path, metavar="FILE", help="answer only requests with a key of this file")
    parser.add_argument("--open", action="store_true", help="let other machines use it without a key")
    parser.add_argument(
        "--cors-origin",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="a page that may use the API; may be repeated",
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=ServerSettings.workers,
        metavar="N",
        help="processes; each loads the model, all map the same datastores (default: %(default)s)",
    )
    parser.add_argument(
        "--engine", choices=ENGINES, default=ServerSettings.engine, help="ray: as many replicas of Ray Serve instead"
    )
    parser.add_argument("--ray-address", metavar="ADDRESS", help="of a Ray cluster, or auto (default: started here)")
    parser.add_argument(
        "--jobs-folder",
        type=Path,
        metavar="FOLDER",
        help="where files of clients lie while they are worked on; on a cluster one that all machines see",
    )
    limits = parser.add_argument_group("limits")
    for name, meaning in LIMITS.items():
        default = getattr(ServerSettings, name)
        option = f"--{name.replace('_', '-')}"
        limits.add_argument(
            option, type=type(default), default=default, metavar="N", help=f"{meaning} (default: %(default)s)"
        )


def run(arguments: argparse.Namespace) -> None:
    """Serve until a signal."""
    from knn_seq.serve.run import serve
    from knn_seq.serve.settings import ServerSettings
    from knn_seq.serve.stores import parse_stores

    settings = ServerSettings(
        host=arguments.host,
        port=arguments.port,
        api_keys=arguments.api_keys,
        open=arguments.open,
        cors_origins=tuple(arguments.cors_origin),
        workers=arguments.workers,
        engine=arguments.engine,
        ray_address=arguments.ray_address,
        jobs_folder=arguments.jobs_folder,
        **{name: getattr(arguments, name) for name in LIMITS},
    )
    serve(parse_stores(arguments.stores), settings)
