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
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

from debian_text import download
from figures import markdown, write_figures
from it_text import END_OF_CONTEXT, catalogs

from knn_seq import Translator
from knn_seq.demo.run import MODEL
from knn_seq.documents.sentences import sentence_starts
from knn_seq.metrics.bleu import bleu
from knn_seq.protect import Protector, join

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
        protector = Protector(translator.translate, sentences=sentences, attention=translator.attention)
        results = protector.translate([(text,) for text in texts])
        repaired.extend(result.repaired for result in results)
        return [join(result.content) for result in results]

    def unprotected(texts: list[str]) -> list[str]:
        """Sentence by sentence, as protected texts are, but for their placeholders."""
        cuts = [[0, *sentence_starts(text, language="pt"), len(text)] for text in texts]
        pieces = [[text[a:b] for a, b in pairwise(its)] for text, its in zip(texts, cuts, strict=True)]
        outputs = iter(translator.translate([piece.strip() for some in pieces for piece in some]))
        return [" ".join(next(outputs) for _ in some) for some in pieces]

    rows, plain_seconds = [], 0.0
    systems: dict[str, Callable[[list[str]], Sequence[str]]] = {
        "complete messages, unprotected": translator.translate,
        "sentences, unprotected": unprotected,
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
    every = [each for source in sources for each in placeholders(source)]
    markup = sum(each.startswith("<") for each in every)
    title = (
        f"{len(sources):,} messages of {len(PACKAGES)} packages with {len(every) - markup:,} placeholders and "
        f"{markup:,} tags; greedy, the model alone."
    )
    head = ("", "all placeholders kept (goal: 100 %)", "BLEU (goal: at most 0.5 lower)", "repaired", "CPU time")
    write_figures(arguments.into, {"placeholders": f"{title}\n\n{markdown(head, rows)}"})


# What the check looks for, written down apart from the patterns that protect: it must not agree with itself.
CHECKED = re.compile(
    r"""</[a-zA-Z]\w*> | <(?:p|qt|br|hr|li|nl|img)\b[^<>]*> | <[a-zA-Z][^<>]*[="/][^<>]*> | <[A-Z]+>
      | <(\w+)>(?=.*</\1>)                                       # markup; <file> alone is a word of a usage
      | [a-z]+://[^\s<>"')\]]+ | \S+@\S+\.\w+                    # addresses
      | &[a-zA-Z]+; | &\#\w+;                                    # entities
      | \$?\{+[^{}]*\}+ | \$\w+ | \$\([\w.]+\)                   # variables
      | %%
      | %\(\w+\)[a-z] | %\d+\$?(?:[-+\#0]*\d*\.?\d*)[a-zA-Z]? | %[-+\#0]*\d*(?:\.\d+)?(?:hh|h|ll|l|z)?[a-zA-Z@]\b
      | @[A-Z_]+@ | \[[A-Z]+\d+[A-Z]*\]
      | \\[ntr]""",
    re.VERBOSE,
)
UNNUMBERED = re.compile(r"%[-+#0]*\d*(?:\.\d+)?(?:hh|h|ll|l|z)?[a-zA-Z]")


def placeholders(text: str) -> list[str]:
    """Those of a text, in their order."""
    return [match[0].rstrip(".,;:!?") for match in CHECKED.finditer(text)]


def is_kept(source: str, output: str) -> bool:
    """Whether both have the same placeholders, and printf's unnumbered ones in the same order."""
    first, second = placeholders(source), placeholders(output)
    in_order = [[each for each in side if UNNUMBERED.fullmatch(each)] for side in (first, second)]
    return Counter(first) == Counter(second) and in_order[0] == in_order[1]


def messages(cache: Path, count: int) -> list[tuple[str, str]]:
    """Portuguese and English of messages with placeholders, each once."""
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
                if fit and CHECKED.search(portuguese) and is_kept(portuguese, english):
                    found.setdefault(portuguese, english)
    marked: list[tuple[str, str]] = []
    plain: list[tuple[str, str]] = []
    for source, target in sorted(found.items()):
        has_markup = any(each.startswith("<") for each in placeholders(source))
        (marked if has_markup else plain).append((source, target))
    chosen = random.Random(SEED)
    some = chosen.sample(marked, min(count // 2, len(marked)))
    return some + chosen.sample(plain, min(count - len(some), len(plain)))


if __name__ == "__main__":
    main()
