"""Options of commands that build: who does the work."""

from __future__ import annotations

import argparse

ENGINE_OPTIONS = ("engine", "workers", "ray_address", "gpus_per_worker")


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """Declare them; they are named after the fields of `BuildSettings`."""
    group = parser.add_argument_group("engine", "Who does the work; a build may resume with another one.")
    group.add_argument("--engine", help="local (default), ray, or one of an installed package")
    group.add_argument(
        "--workers", type=int, help="processes (default: one a core that tokenize; on Ray one a GPU, or one a node)"
    )
    group.add_argument(
        "--ray-address", metavar="ADDRESS", help="of a Ray cluster, or auto (default: Ray is started on this machine)"
    )
    group.add_argument("--gpus-per-worker", type=float, metavar="G", help="on Ray (default: 1 if there are any)")
