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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product
from typing import Any, NamedTuple
from unittest.mock import patch

from domains import SEED, TEST, Domain, ParallelText, domain_arguments, domain_of, firefox_model
from figures import markdown, measuring_conditions, write_figures
from rounds import Ratio, rates_by_pieces

from knn_seq import Translation, Translator
from knn_seq.decoding.chain import chained
from knn_seq.decoding.due_terms import DueTerms
from knn_seq.decoding.terms import TermBatch
from knn_seq.glossary import Glossary, Term
from knn_seq.glossary.words import Spelling, words_of
from knn_seq.metrics.bleu import bleu
from knn_seq.models import Source
from knn_seq.models.search import Distribution, loop
from knn_seq.models.search.step_by_step import Greedy

RARE = 0.01  # of all sentences: a term is in no more
LEAST_LETTERS, LEAST_SENTENCES = 5, 5  # of a term
LEAST_DICE = 0.6  # of a word and its translation: how often they come together
TIMED, ROUNDS = 96, 7
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
        costs += [[f"{domain}, {name}", *step_cost(prepared, options)] for name, options in SYSTEMS.items()]
    head = [
        "",
        "CPU time of a step / no glossary (goal: at most 1.05)",
        "with what finds the terms",
        "control: no glossary / no glossary",
    ]
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
    head = [
        "",
        "terms in the output (goal: 97 %)",
        "BLEU (goal: not lower)",
        "unchanged without a term (goal: all)",
        "CPU time / no glossary",
    ]
    return f"{title}\n\n{markdown(head, rows)}"


def run(translator: Translator, sources: list[str], glossary: Glossary, options: dict[str, Any]) -> Measured:
    """Translate, and say what it took."""
    start = time.process_time()
    outputs = translator.translate(sources, glossary=glossary, **options)
    return Measured(outputs, time.process_time() - start)


def step_cost(domain: Prepared, options: dict[str, Any]) -> list[str]:
    """CPU time of a step in which terms are pushed over that of one without, also if the time counts in which terms are
    found in the sources, and of a step without over itself.

    All sentences have terms, and all systems write the same tokens, those that come of pushing: so they make the same
    steps with the same rows.  They take turns batch by batch.
    """
    translator, finder = domain.translator, domain.glossary.finder("pt", "en")
    sources = [source for source, count in zip(domain.test.sources, domain.terms(), strict=True) if count][:TIMED]
    search, decoding = translator.settings(options)
    read = sorted(translator.read(sources, search)[0], key=lambda source: -len(source.tokens))
    batches = [read[start : start + decoding.batch_size] for start in range(0, len(read), decoding.batch_size)]
    decoder = translator.term_decoder

    def decoded(some: list[Source], due: Sequence[DueTerms | None] | None) -> list[list[int]]:
        terms = None if due is None else TermBatch(due, decoder.tokens, decoder.ends)
        hook = chained(translator.decoder.batch(some, search, None), terms)
        found = translator.model.generate([source.tokens for source in some], decoding, hook)
        return [outputs[0].tokens for outputs in found]

    due = [decoder.tokens.due(some, finder) for some in batches]
    written = [decoded(*both) for both in zip(batches, due, strict=True)]
    systems: dict[str, Callable[[int], Sequence[DueTerms | None] | None]] = {
        "no glossary": lambda batch: None,
        "glossary": lambda batch: due[batch],
        "glossary, finding": lambda batch: decoder.tokens.due(batches[batch], finder),
        "no glossary, again": lambda batch: None,
    }

    def run_of(system: str, batch: int) -> int:
        with replaying(written[batch]):
            assert decoded(batches[batch], systems[system](batch)) == written[batch]
        return max(map(len, written[batch]))  # steps

    runs = {name: [partial(run_of, name, batch) for batch in range(len(batches))] for name in systems}
    plain, *others = rates_by_pieces(runs, ROUNDS, time.process_time).values()
    return [str(cost(plain, other)) for other in others]


def cost(plain: list[list[float]], other: list[list[float]]) -> Ratio:
    """Of the steps a second of each batch in each round: what a step takes over a plain one, the median of batches."""
    return Ratio.over([Ratio.of(*both).median for both in zip(plain, other, strict=True)])


@contextmanager
def replaying(outputs: list[list[int]]) -> Iterator[None]:
    """Let greedy search write these outputs, whatever is most probable."""

    class Replay(Greedy):
        def choose(self, distribution: Distribution, sentences: Sequence[Any], unruled: Any) -> None:
            distribution.best(1)  # as it would
            for sentence in sentences:
                sentence.take([outputs[sentence.request.number][sentence.length]], [0.0])

    with patch.object(loop, "Greedy", Replay):
        yield


def drawn(train: ParallelText, test: ParallelText) -> Glossary:
    """The terms of a test set: rare words with one translation, which all of its references have."""
    portuguese, english = Spelling("pt"), Spelling("en")

    def sides(text: ParallelText) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
        for source, target in zip(text.sources, text.references, strict=True):
            yield stems(source, portuguese), stems(target, english)

    everything = [*sides(train), *sides(test)]
    spellings = (Spellings(test.sources, portuguese), Spellings(test.references, english))
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
            terms.append(Term(spellings[0].usual(stem), spellings[1].usual(best)))
    return Glossary(terms_of_all(terms, test), "pt", "en")


def terms_of_all(terms: Sequence[Term], test: ParallelText) -> list[Term]:
    """The terms that the reference of every source has that has them, whatever counts as a form of them."""
    finder = Glossary(terms, "pt", "en").finder("pt", "en")
    wrong: set[Term] = set()
    for source, reference in zip(test.sources, test.references, strict=True):
        found = finder.find(source)
        wrong.update(term for number in finder.check(found).missing(reference) for term in found[number].terms)
    return [term for term in terms if term not in wrong]


class Spellings:
    """How words are written inside of sentences, by their stems: a large letter at the beginning tells nothing."""

    def __init__(self, texts: Iterable[str], spelling: Spelling) -> None:
        self._words: dict[str, Counter[str]] = defaultdict(Counter)
        for text in texts:
            first = next((word.text for word in words_of(text) if word.text.isalpha()), "")
            for stem, word in stems(text, spelling).items():
                self._words[stem][word.lower() if word == first else word] += 1

    def usual(self, stem: str) -> str:
        """The most frequent word of a stem."""
        return self._words[stem].most_common(1)[0][0]


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
