"""The figures of docs/glossary.md: are terms in the output, and what do they do to it and cost?  Greedy.

    python benchmarks/glossary.py --into docs/glossary.md

For each domain a glossary is drawn from the references of its test set: words of the source, rare ones, whose
translation is the same in all of them.  The model alone and with neighbours translate the test set without the
glossary, with it, and with one whose targets are exchanged at random, which are wrong and have to appear all the same.
"""

from __future__ import annotations

from knn_seq.runtime.environment import limit_spinning

limit_spinning()  # before torch is imported

import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any, NamedTuple
from unittest.mock import patch

from domains import SEED, TEST, Domain, ParallelText, domain_arguments, domain_of, firefox_model
from figures import markdown, measuring_conditions, write_figures
from rounds import Ratio
from torch import Tensor

from knn_seq import Translation, Translator
from knn_seq.decoding import term_decoder
from knn_seq.glossary import Glossary, Term
from knn_seq.glossary.words import Spelling, words_of
from knn_seq.metrics.bleu import bleu
from knn_seq.models.firefox_network.decoder import FirefoxDecoder
from knn_seq.models.search.decoder import DecoderStep

RARE = 0.01  # of all sentences: a term is in no more
LEAST_LETTERS, LEAST_SENTENCES = 5, 5  # of a term
LEAST_DICE = 0.6  # of a word and its translation: how often they come together
TIMED, ROUNDS = 64, 5
SYSTEMS: dict[str, dict[str, Any]] = {"the model alone": {"weight": 0.0}, "with neighbours": {}}


class Measured(NamedTuple):
    """What came of one system and one glossary."""

    outputs: list[Translation]
    seconds: float  # of the CPU

    def share(self, glossary: Glossary, sources: Sequence[str]) -> float:
        """Of the terms of the sources, those that the outputs have."""
        finder = glossary.finder("pt", "en")
        found = [finder.find(source) for source in sources]
        lacking = sum(
            len(finder.check(terms).missing(output)) for terms, output in zip(found, self.outputs, strict=True)
        )
        return 1 - lacking / max(sum(map(len, found)), 1)


def main() -> None:
    parser = domain_arguments(__doc__, ("bible", "it"))
    parser.add_argument("--sentences", type=int, default=TEST)
    parser.add_argument("--only-cost", action="store_true", help="measure only what a step costs")
    arguments = parser.parse_args()
    conditions = measuring_conditions()
    model = firefox_model()
    costs = []
    for domain in arguments.domains:
        prepared = Prepared.of(domain_of(domain, arguments, model), arguments.sentences)
        if not arguments.only_cost:
            write_figures(arguments.into, {f"glossary/{domain}": measured(prepared)}, conditions)
        costs += [[f"{domain}, {name}", step_cost(prepared, options)] for name, options in SYSTEMS.items()]
    head = ["", "CPU time of a step / no glossary"]
    write_figures(arguments.into, {"glossary/cost": markdown(head, costs)}, conditions)


class Prepared(NamedTuple):
    """A test set with its glossary, and what translates it."""

    test: ParallelText
    glossary: Glossary
    translator: Translator

    @classmethod
    def of(cls, domain: Domain, sentences: int) -> Prepared:
        """With some sentences of the test set of a domain."""
        test = domain.test.first(sentences)
        return cls(test, drawn(ParallelText.of("train", domain.train), test), domain.translator)

    def terms(self) -> list[int]:
        """How many terms each sentence has."""
        finder = self.glossary.finder("pt", "en")
        return [len(finder.find(source)) for source in self.test.sources]


def measured(domain: Prepared) -> str:
    """The table of a domain."""
    test, glossary, translator = domain
    wrong, counts = exchanged(glossary), domain.terms()
    without = [number for number, count in enumerate(counts) if not count]
    rows = []
    for name, options in SYSTEMS.items():
        results = {
            kind: run(translator, test.sources, terms, options)
            for kind, terms in (("", Glossary()), (", glossary", glossary), (", wrong targets", wrong))
        }
        plain = results[""]
        for kind, result in results.items():
            used = wrong if result is results[", wrong targets"] else glossary
            same = sum(result.outputs[number].tokens == plain.outputs[number].tokens for number in without)
            rows.append(
                [
                    name + kind,
                    f"{result.share(used, test.sources):.1%}",
                    f"{bleu(result.outputs, test.references).value:.1f}",
                    f"{same} of {len(without)}",
                    f"{result.seconds / plain.seconds:.2f}",
                ]
            )
    title = (
        f"{len(test.sources)} test sentences, {len(glossary)} terms, which they have {sum(counts)} times in "
        f"{len(test.sources) - len(without)} sentences."
    )
    head = ["", "terms in the output", "BLEU", "unchanged without a term", "CPU time / no glossary"]
    return f"{title}\n\n{markdown(head, rows)}"


def run(translator: Translator, sources: list[str], glossary: Glossary, options: dict[str, Any]) -> Measured:
    """Translate, and say what it took."""
    start = time.process_time()
    outputs = translator.translate(sources, glossary=glossary, **options)
    return Measured(outputs, time.process_time() - start)


def step_cost(domain: Prepared, options: dict[str, Any]) -> str:
    """CPU time of a step of sentences with terms over that without a glossary, in turns; none is decoded again."""
    some = [source for source, count in zip(domain.test.sources, domain.terms(), strict=True) if count][:TIMED]
    if not some:
        return "no terms"
    passes, term_decoder.PASSES = term_decoder.PASSES, 0
    ratios = []
    for number in range(-1, ROUNDS):
        costs = {}
        for terms in (Glossary(), domain.glossary) if number % 2 else (domain.glossary, Glossary()):
            with counted_steps() as steps:
                seconds = run(domain.translator, some, terms, options).seconds
            costs[len(terms)] = seconds / len(steps)
        if number >= 0:  # the first round only warms up
            ratios.append(costs[len(domain.glossary)] / costs[0])
    term_decoder.PASSES = passes
    return str(Ratio.over(ratios))


@contextmanager
def counted_steps() -> Iterator[list[int]]:
    """A list that grows with each step of decoding."""
    steps: list[int] = []
    step = FirefoxDecoder.step

    def counting(self: FirefoxDecoder, tokens: Tensor) -> DecoderStep:
        steps.append(1)
        return step(self, tokens)

    with patch.object(FirefoxDecoder, "step", counting):
        yield steps


def drawn(train: ParallelText, test: ParallelText) -> Glossary:
    """The terms of a test set: rare words with one translation, which all of its references have."""
    portuguese, english = Spelling("pt"), Spelling("en")

    def sides(text: ParallelText) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
        for source, target in zip(text.sources, text.references, strict=True):
            yield stems(source, portuguese), stems(target, english)

    everything = [*sides(train), *sides(test)]
    counts = [Counter(stem for pair in everything for stem in pair[side]) for side in range(2)]
    rare = max(RARE * len(everything), 2 * LEAST_SENTENCES)
    wanted = {stem for pair in sides(test) for stem in pair[0] if LEAST_SENTENCES <= counts[0][stem] <= rare}
    together: dict[str, Counter[str]] = defaultdict(Counter)
    for source, target in everything:
        for one, other in product(wanted & source.keys(), target):
            together[one][other] += 1
    terms = []
    scored = {
        stem: {other: dice(stem, other, count, counts) for other, count in others.items()}
        for stem, others in together.items()
    }
    linked: set[str] = set()  # a word is the translation of one word, that which it comes together with most
    for stem in sorted(scored, key=lambda stem: (-max(scored[stem].values()), stem)):
        scores = scored[stem]
        best = max(scores, key=lambda other: (scores[other], other))
        if best in linked:
            continue
        linked.add(best)
        uses = [(source[stem], target.get(best)) for source, target in sides(test) if stem in source]
        if scores.get(best, 0.0) >= LEAST_DICE and all(word for _, word in uses):
            word = Counter(word for word, _ in uses).most_common(1)[0][0]
            translation = Counter(word for _, word in uses if word).most_common(1)[0][0]
            terms.append(Term(word, translation))
    return Glossary(terms, "pt", "en")


def dice(stem: str, other: str, together: int, counts: list[Counter[str]]) -> float:
    """How often two words come together, over how often they come."""
    return 2 * together / (counts[0][stem] + counts[1][other])


def stems(text: str, spelling: Spelling) -> dict[str, str]:
    """The words of a text that could be terms, by their stems."""
    words = [word.text for word in words_of(text) if len(word.text) >= LEAST_LETTERS and word.text.isalpha()]
    return dict(zip(spelling.keys(words, "stem"), words, strict=True))


def exchanged(glossary: Glossary) -> Glossary:
    """The same sources with targets of others."""
    targets = [term.target for term in glossary]
    random.Random(SEED).shuffle(targets)
    terms = [Term(term.source, target) for term, target in zip(glossary, targets, strict=True)]
    return Glossary(terms, glossary.source_lang, glossary.target_lang)


if __name__ == "__main__":
    main()
