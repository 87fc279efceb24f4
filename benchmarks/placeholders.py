"""What protecting placeholders and inline tags costs: real strings of programs, Portuguese to English, model alone.

    python benchmarks/placeholders.py --into docs/files.md

Downloads a few Debian packages with apt (no root needed, some 50 MB) and takes from their catalogs 2,000 messages with
a placeholder whose translation by people has the same ones, those with markup first, up to a half.
"""

from __future__ import annotations

from knn_seq.runtime.environment import limit_spinning

limit_spinning()  # before torch is imported

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from debian_text import download
from figures import markdown, write_figures
from it_text import END_OF_CONTEXT, catalogs

from knn_seq import Translator
from knn_seq.demo.run import MODEL
from knn_seq.documents.sentences import sentence_starts
from knn_seq.metrics.bleu import bleu
from knn_seq.protect import Finder, Protector, join
from knn_seq.protect.content import Role, tags_of

PACKAGES = """
    akregator apt aptitude-common ark bash coreutils dnf-data dpkg evince-common file-roller filezilla-common
    findutils firewalld flatpak gawk gedit-common gettext gnome-software-common gnupg1-l10n konversation-data
    krusader
""".split()  # noqa: SIM905
STRINGS, SEED = 2000, 20
WORDS = (4, 40)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=Path("results/debian"), help="where packages are downloaded to")
    parser.add_argument("--strings", type=int, default=STRINGS)
    parser.add_argument("--into", type=Path, help="a page with a place for the table")
    arguments = parser.parse_args()

    pairs = messages(arguments.cache, arguments.strings)
    sources, references = [source for source, _ in pairs], [target for _, target in pairs]
    memory = [("a", "a")]
    translator = Translator(model=MODEL, translation_memory=memory, weight=0.0, temperature=1.0, beam_size=1)
    repaired: list[bool] = []

    def protected(texts: list[str]) -> list[str]:
        sentences = partial(sentence_starts, language="pt")
        results = Protector(translator.translate, sentences=sentences).translate([(text,) for text in texts])
        repaired.extend(result.repaired for result in results)
        return [join(result.content) for result in results]

    rows, plain_seconds = [], 0.0
    systems: dict[str, Callable[[list[str]], Sequence[str]]] = {
        "as it is": translator.translate,
        "protected": protected,
    }
    for name, translate in systems.items():
        start = time.process_time()
        outputs = list(map(str, translate(sources)))
        seconds = time.process_time() - start
        plain_seconds = plain_seconds or seconds
        score = bleu(outputs, references).value
        rows.append(
            (
                name,
                f"{sum(map(is_kept, sources, outputs)) / len(sources):.1%}",
                f"{score:.2f}",
                f"{sum(repaired) / len(sources):.1%}" if repaired else "",
                f"{seconds / plain_seconds:.2f}",
            )
        )
    kinds = Counter(tag.role for source in sources for tag in tags_of(Finder().split(source)))
    markup = sum(count for role, count in kinds.items() if role is not Role.WORD)
    title = (
        f"{len(sources):,} messages of {len(PACKAGES)} packages with {kinds[Role.WORD]:,} placeholders and {markup:,} "
        "tags; greedy, the model alone."
    )
    head = ("", "all placeholders kept", "BLEU", "repaired", "CPU time")
    write_figures(arguments.into, {"placeholders": f"{title}\n\n{markdown(head, rows)}"})


def is_kept(source: str, output: str) -> bool:
    """Whether both have the same placeholders, in the same order where it counts."""
    finder = Finder()
    first, second = (finder.split(text) for text in (source, output))
    in_order = ([tag.raw for tag in tags_of(side) if tag.in_order] for side in (first, second))
    return Counter(finder.find(source)) == Counter(finder.find(output)) and next(in_order) == next(in_order)


def messages(cache: Path, count: int) -> list[tuple[str, str]]:
    """Portuguese and English of messages with placeholders, each once."""
    finder = Finder()
    found: dict[str, str] = {}
    for package in download(PACKAGES, cache):
        for catalog in catalogs(package):
            for message, translation in vars(catalog)["_catalog"].items():
                text = message[0] if isinstance(message, tuple) else message
                english = text.rpartition(END_OF_CONTEXT)[2]
                if isinstance(message, tuple) or "\n" in english.strip() or "\n" in translation.strip():
                    continue
                english, portuguese = english.strip(), translation.strip()
                fit = WORDS[0] <= len(portuguese.split()) <= WORDS[1] and english != portuguese
                if fit and finder.find(portuguese) and is_kept(portuguese, english):
                    found.setdefault(portuguese, english)
    marked: list[tuple[str, str]] = []
    plain: list[tuple[str, str]] = []
    for source, target in sorted(found.items()):
        roles = {tag.role for tag in tags_of(finder.split(source))}
        (marked if roles - {Role.WORD} else plain).append((source, target))
    chosen = random.Random(SEED)
    some = chosen.sample(marked, min(count // 2, len(marked)))
    return some + chosen.sample(plain, min(count - len(some), len(plain)))


if __name__ == "__main__":
    main()
