"""`knn-seq api-key`: the keys of a server."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "make, list and remove the API keys of a server"
EXAMPLE = "knn-seq api-key keys.json add weblate --role edit"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    from knn_seq.serve.settings import ROLES

    parser.add_argument("file", type=Path, metavar="FILE", help="the file of keys, which has no key but only hashes")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True, dest="action")
    add = actions.add_parser("add", help="make a key and print it: it is kept nowhere else")
    add.add_argument("name", help="what the key is called")
    add.add_argument("--role", choices=ROLES, default=ROLES[0], help="what it permits (default: %(default)s)")
    add.add_argument("--requests-a-minute", type=int, metavar="N", help="how many it permits (default: any number)")
    actions.add_parser("list", help="show names, roles and limits")
    actions.add_parser("remove", help="make a key invalid from now on").add_argument("name", help="the key's name")


def run(arguments: argparse.Namespace) -> None:
    """Change or show the file."""
    from knn_seq.serve.access import KeyFile

    keys = KeyFile(arguments.file)
    if arguments.action == "add":
        print(keys.add(arguments.name, arguments.role, arguments.requests_a_minute))
    elif arguments.action == "remove":
        keys.remove(arguments.name)
    else:
        for key in keys.keys:
            limit = "any number of requests" if key.requests_a_minute is None else f"{key.requests_a_minute} a minute"
            print(f"{key.name}\t{key.role}\t{limit}")
