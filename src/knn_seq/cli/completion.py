"""knn-seq completion: the Tab key in a shell."""

from __future__ import annotations

import argparse

HELP = "print what a shell needs to complete commands and options"
EXAMPLE = 'eval "$(knn-seq completion bash)"'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="which evaluates it when it starts")


def run(arguments: argparse.Namespace) -> None:
    """Print the shell's code."""
    from argcomplete.shell_integration import shellcode

    print(shellcode(["knn-seq"], shell=arguments.shell))
