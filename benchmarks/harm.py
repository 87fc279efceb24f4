"""What every datastore does to the text of every domain: the model alone against `fixed` and `learned`.

    python benchmarks/harm.py --domains bible it office-help manuals --into docs/combiners.md

`fixed` is tuned on dev of the datastore's domain, `learned` sees no dev set.  Beside the test sets of the domains there
are general sentences (`general.pt-en.tsv`, written for this purpose, none of them among those that combiners are
trained with), what games say, and sentences that are stored, which must come out as they are stored: with `learned`
for every retriever.  Greedy.
"""

from __future__ import annotations

from knn_seq.runtime.environment import limit_spinning

limit_spinning()  # before torch is imported

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from domains import Domain, ParallelText, domain_arguments, domain_of, firefox_model, kept_figures, others, run_script
from figures import markdown, measuring_conditions, write_figures

from knn_seq import Translator
from knn_seq.evaluate.stored_targets import reproduced
from knn_seq.metrics.bleu import bleu

SENTENCES, QUICK_SENTENCES = 250, 8  # of each test set
WORST = -1.0  # BLEU: what is lower is marked
COMBINERS = ("fixed", "learned")
STORED: dict[str, Callable[[Domain], tuple[Translator, dict[str, Any]]]] = {  # what translates stored sentences
    "`fixed`": lambda domain: (domain.translator, domain.tuned()),
    "`learned`": lambda domain: (domain.translator, {}),
    "`learned`, subset": lambda domain: (domain.translator, {"retriever": "subset"}),
    "`learned`, memory": lambda domain: (domain.memory, {}),
}


def main() -> None:
    run_script(run, domain_arguments(__doc__).parse_args())


def run(arguments: argparse.Namespace) -> None:
    model = firefox_model()
    kept = kept_figures("harm", __file__, arguments)
    conditions = kept.get(("conditions",), measuring_conditions)
    count = QUICK_SENTENCES if arguments.quick else SENTENCES
    domains = [domain_of(name, arguments, model) for name in arguments.domains]
    sets = [one.first(count) for one in (*(domain.test for domain in domains), *others(arguments.text_folder))]
    for domain in domains:
        for one in sets:
            kept.get(("base", one.name), partial(scored, domain, one, {"weight": 0.0}))
            for combiner in COMBINERS:
                kept.get((domain.name, combiner, one.name), partial(scored, domain, one, settings(domain, combiner)))
        domain.prepare_subset()
        for system in STORED:
            kept.get((domain.name, "stored", system), partial(stored, domain, system))
    text = table([domain.name for domain in domains], sets, kept.figures)
    write_figures(arguments.into, {"harm": text}, conditions)


def settings(domain: Domain, combiner: str) -> dict[str, Any]:
    """Of a combiner with the datastore of a domain."""
    return domain.tuned() if combiner == "fixed" else {"combiner": combiner}


def scored(domain: Domain, test: ParallelText, options: Mapping[str, Any]) -> float:
    """BLEU of a test set with the datastore of a domain."""
    return bleu(domain.translator.translate(test.sources, **options), test.references).value


def stored(domain: Domain, system: str) -> str:
    """How many stored sentences come out as they are stored."""
    return str(reproduced(*STORED[system](domain), domain.stored))


def table(stores: Sequence[str], sets: Sequence[ParallelText], figures: Mapping[str, Any]) -> str:
    """A row for each datastore and combiner: BLEU, and its difference to the model alone."""
    rows = [["", "the model alone", *(f"{figures['base'][one.name]:.1f}" for one in sets)]]
    marked = 0
    for store in stores:
        for combiner in COMBINERS:
            own, cells = figures[store][combiner], []
            for one in sets:
                gain = own[one.name] - figures["base"][one.name]
                worse = gain < WORST
                marked += worse and combiner == "learned"
                cells.append(f"{own[one.name]:.1f} ({'**' * worse}{gain:+.1f}{'**' * worse})")
            rows.append([store, f"`{combiner}`", *cells])
    sizes = ", ".join(f"{one.name} {len(one.sources)}" for one in sets)
    verdict = f"Cells of `learned` more than {-WORST:g} BLEU below the model alone: {marked}."
    head = ["datastore", "", *(one.name for one in sets)]
    of_stored = [[store, *(figures[store]["stored"][system] for system in STORED)] for store in stores]
    reproductions = markdown(["stored sentences reproduced", *STORED], of_stored)
    return f"BLEU; sentences: {sizes}.\n\n{markdown(head, rows)}\n\n{verdict}\n\n{reproductions}"


if __name__ == "__main__":
    main()
