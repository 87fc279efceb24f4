"""Options that several commands share.  They are named after the settings' fields; None leaves the default alone."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from knn_seq.registry import parse_pairs

POINTERS = 4  # that are enough
COMBINERS = "fixed, distance, those that were trained (learned, adaptive, robust, kster)"


class _StoreOptions(argparse.Action):
    """Gathers name=value from an option that may be given often."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        setattr(namespace, self.dest, {**(getattr(namespace, self.dest) or {}), **parse_pairs(values)})


def add_part_option(group: Any, part: str, example: str) -> None:
    """An option of a part, such as a combiner or an index, which declares its own."""
    group.add_argument(
        f"--{part}-option",
        dest=f"{part.replace('-', '_')}_options",
        action=_StoreOptions,
        metavar="NAME=VALUE",
        help=f"an option of the {part.replace('-', ' ')} itself, {example}; may be given often",
    )


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """How a model runs."""
    group = parser.add_argument_group("model")
    group.add_argument("--device", help="cpu, cuda, cuda:1, mps ... (default: CUDA if there is, else the CPU)")
    group.add_argument(
        "--dtype",
        choices=("int8", "float32", "float16", "bfloat16"),
        help="what the model computes in; int8 is for CPUs (default: as the datastore's keys were computed; for a new "
        "one int8 with Firefox's models, else float32)",
    )
    group.add_argument(
        "--shortlist",
        action=argparse.BooleanOptionalAction,
        help="choose only among what each source can become: Firefox's models come with such a list; for others build "
        "and index learn one from the sentence pairs",
    )


def add_corpus_options(parser: argparse.ArgumentParser, name: str, purpose: str, several: bool = False) -> None:
    """A parallel corpus.

    Args:
        parser: The command's parser.
        name: The option's name.
        purpose: What the corpus is for.
        several: It may be given as several files.
    """
    group = parser.add_argument_group("parallel text")
    formats = "TMX, XLIFF, PO, TSV or JSON lines, gzipped or not, a folder of them, a data-bin folder, or - for stdin"
    how: dict[str, Any] = {"nargs": "+", "action": "extend"} if several else {}
    group.add_argument(f"--{name}", metavar="PATH", help=f"{purpose}: {formats}", **how)
    group.add_argument("--source", metavar="FILE", help=f"instead of --{name}: a text file with the sources ...")
    group.add_argument("--target", metavar="FILE", help="... and one with the targets")
    group.add_argument(
        "--columns",
        metavar="S,T",
        help="where source and target are: TSV columns (default 1,2) or JSON keys; then id, corpus, date",
    )
    group.add_argument(
        "--format", metavar="NAME", help="tmx, xliff, po, tsv, jsonl, text, data_bin ..., where the name does not tell"
    )
    add_part_option(group, "corpus", "such as source_lang=pt,target_lang=en of tmx or split=valid of data_bin")


def add_text_options(parser: argparse.ArgumentParser, name: str, purpose: str) -> None:
    """A plain text in windows."""
    group = parser.add_argument_group("plain text", "For language models; each token is predicted once.")
    group.add_argument(f"--{name}", metavar="FILE", help=f"{purpose}, gzipped or not")
    group.add_argument("--stride", type=int, help="tokens of a window that are predicted (default: half of it)")
    group.add_argument("--context", type=int, help="tokens before these (default: what the model's window leaves)")


def window_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """The stride and the context that were given."""
    named = {name: getattr(arguments, name) for name in ("stride", "context")}
    return {name: value for name, value in named.items() if value is not None}


def corpus_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """What `add_corpus_options` declared, but for the files with both sides, as `open_corpus` takes it."""
    return {
        "source": arguments.source,
        "target": arguments.target,
        "columns": columns_of(arguments.columns),
        "format": arguments.format,
        "options": arguments.corpus_options,
    }


def columns_of(text: str | None) -> tuple[int | str, ...] | None:
    """ "2,3" as (2, 3); names stay names."""
    if text is None:
        return None
    return tuple(int(part) if part.strip().isdigit() else part.strip() for part in text.split(","))


def add_search_options(parser: argparse.ArgumentParser) -> None:
    """How neighbours are found and how much they count."""
    group = parser.add_argument_group("neighbours", "Without these the datastore's own settings hold.")
    group.add_argument("-k", type=int, help="how many neighbours")
    group.add_argument(
        "--temperature",
        type=float,
        help="the larger, the more the farther neighbours count; trained combiners have their own",
    )
    group.add_argument("--weight", type=float, help="interpolation weight of neighbours, 0 to 1; 0 is the model alone")
    group.add_argument(
        "--skip", choices=("learned",), help="don't search where neighbours are unlikely to change anything"
    )
    group.add_argument(
        "--pointers",
        nargs="?",
        type=int,
        const=POINTERS,
        metavar="N",
        help=f"don't search where at least N neighbours (default {POINTERS}) continue what was written",
    )
    group.add_argument(
        "--pointer-agreement", type=float, metavar="SHARE", help="of these that must have the same token (default 0.7)"
    )
    group.add_argument(
        "--clusters", action="store_true", default=None, help="let entries with similar keys join the pointers"
    )
    add_shot_options(group, "as many as its keys were made with")
    group.add_argument("--index", metavar="NAME", help="one of the datastore's indexes")
    group.add_argument("--retriever", help="full, subset, memory, or one of an installed package")
    group.add_argument("--subset-size", type=int, metavar="N", help="sentences that subset and memory search in")
    group.add_argument("--combiner", help=f"{COMBINERS}, or one of an installed package")
    add_part_option(group, "index", "such as nprobe=16")
    add_part_option(group, "retriever", "such as refine_factor=8 of subset")
    add_part_option(group, "combiner", "if it has any")
    group.add_argument(
        "--on-index-failure",
        choices=("error", "base"),
        help="if an index on a server stops answering: stop (default), or continue without neighbours",
    )


def add_shot_options(group: Any, default: str) -> None:
    """Examples in the prompt of a decoder-only model.

    Args:
        group: Where they are declared.
        default: How many there are by default.
    """
    group.add_argument(
        "--shots",
        type=int,
        metavar="N",
        help=f"similar pairs in a decoder-only model's prompt (default {default})",
    )
    group.add_argument("--shots-by", choices=("bm25", "encoder"), help="what finds these pairs (default bm25)")


def add_subset_options(parser: argparse.ArgumentParser) -> None:
    """What subset search needs."""
    group = parser.add_argument_group("subset search", "Search only the sentences that are like the one to translate.")
    group.add_argument(
        "--sentence-search",
        nargs="?",
        const="encoder",
        metavar="SEARCH",
        help="what finds such sentences: encoder (the model's own; default), bm25, tfidf, transformers:NAME, "
        "sentence-transformers:NAME",
    )
    group.add_argument("--sentence-index-recipe", metavar="RECIPE", help='of sentence vectors (default "auto")')
    group.add_argument(
        "--codes", metavar="RECIPE", help='of keys, such as "OPQ64,PQ64" or "Flat" for none (default "auto")'
    )


def add_index_build_options(parser: Any) -> None:
    """Which index is built, and how."""
    parser.add_argument(
        "--index-recipe",
        metavar="RECIPE",
        help='"auto", a faiss factory string, or NAME or NAME:RECIPE of another index',
    )
    parser.add_argument("--distance-metric", choices=("l2", "ip", "cosine"), help="of keys and queries (default l2)")
    parser.add_argument(
        "--memory-limit",
        metavar="SIZE",
        help="that building the index may take, such as 8GB (default: half of what is free)",
    )
    add_part_option(parser, "index", "which it keeps, such as dtype=float16 of torch")


def add_decoding_options(parser: argparse.ArgumentParser) -> None:
    """How translations are searched for."""
    group = parser.add_argument_group("decoding")
    group.add_argument("--beam-size", type=int, help="beams (default 5); 1 is greedy")
    group.add_argument("--length-penalty", type=float, help="the larger, the longer the outputs (default 1.0)")
    group.add_argument("--max-length", type=int, help="tokens of an output at most (default 256)")
    group.add_argument("--batch-size", type=int, help="sentences at a time (default 32)")
    group.add_argument(
        "--batch-tokens",
        type=int,
        help="tokens at a time: a sentence has its source's, and as many for each beam (default: any number)",
    )
    group.add_argument("--sample", action="store_true", default=None, help="sample instead of searching")
    group.add_argument("--top-k", type=int, help="sample among the most probable only")
    group.add_argument("--top-p", type=float, help="sample among those that hold this much probability")
    group.add_argument("--sampling-temperature", type=float, help="the larger, the more varied")
    group.add_argument("--seed", type=int, help="of sampling")


def add_quiet_option(parser: argparse.ArgumentParser) -> None:
    """How much is said on standard error."""
    parser.add_argument("-q", "--quiet", action="store_true", help="show no progress")


def chosen(arguments: argparse.Namespace, *kinds: type) -> dict[str, Any]:
    """The options that were given, of these settings."""
    from dataclasses import fields

    names = {field.name for kind in kinds for field in fields(kind)}
    return {name: value for name, value in vars(arguments).items() if name in names and value is not None}


def given_flag(arguments: argparse.Namespace, names: Sequence[str]) -> str | None:
    """The first of these options that was given, as it stands on the command line."""
    given = next((name for name in names if getattr(arguments, name) is not None), None)
    if given is None:
        return None
    return "--" + (given.removesuffix("s") if given.endswith("_options") else given).replace("_", "-")
