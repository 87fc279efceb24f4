"""The figures of docs/combiners.md: every combiner in its domain and outside of it.

    python benchmarks/combiners.py --domains bible --into docs/combiners.md
    python benchmarks/combiners.py --domains bible it --it-text results/it.pt-en.tsv.gz --into docs/combiners.md

A datastore is built of each domain.  `fixed` is tuned on a dev set; all others are trained on the datastore's own
sentences and see no dev set.  Each translates the domain's test set, general sentences (`general.pt-en.tsv`, written
for this purpose, none of them among those that combiners are trained with) and what games say, which must come out as
the model alone writes it, and sentences that are stored, which must come out as they are stored.  Greedy.
"""

from __future__ import annotations

from knn_seq.runtime.environment import limit_spinning

limit_spinning()  # before torch is imported

import argparse
from typing import Any

from domains import Domain, TestSet, domain_arguments, domain_of, others, stored
from figures import markdown, measuring_conditions, write_figures

from knn_seq import Translator
from knn_seq.demo.run import MODEL
from knn_seq.evaluate.comparison import shown_p_value
from knn_seq.metrics import METRICS
from knn_seq.models import Model, load_model
from knn_seq.settings import ModelSettings
from knn_seq.tune import tune

TRAINED = ("learned", "adaptive", "robust", "kster")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    domain_arguments(parser)
    arguments = parser.parse_args()
    model = load_model(ModelSettings(MODEL))
    for domain in arguments.domains:
        conditions = measuring_conditions()
        text = measured(domain_of(domain, arguments, model), model, others(arguments.it_text))
        write_figures(arguments.into, {f"combiners/{domain}": text}, conditions)


def measured(domain: Domain, model: Model, elsewhere: list[TestSet]) -> str:
    """The table of a domain."""
    store, dev, test = domain.store, domain.dev, domain.test
    translator = Translator(store, model, beam_size=1)
    trained = {each.settings.combiner: each for each in translator.train(TRAINED)}
    tuned = tune(translator, dev.sources, dev.references, combiner="fixed", confirm=4).chosen
    systems: dict[str, dict[str, Any]] = {
        "the model alone": {"weight": 0.0},
        "`fixed`, as the build measured it": {"combiner": "fixed"},
        "`fixed`, tuned on a dev set": tuned,
        **{f"`{name}`": {"combiner": name} for name in TRAINED},
    }
    sets = [test, *elsewhere, stored(store)]
    outputs = {
        name: [[each.text for each in translator.translate(one.sources, **options)] for one in sets]
        for name, options in systems.items()
    }
    title = (
        f"{store.manifest.counts.sentences:,} sentence pairs, {len(store):,} entries; {len(test.sources)} test "
        f"sentences; {trained['learned'].tokens:,} tokens to train with, from one search."
    )
    seconds = {f"`{name}`": f"{each.seconds:.1f} s" for name, each in trained.items()}
    return f"{title}\n\n{table(sets, outputs, seconds)}"


def table(sets: list[TestSet], outputs: dict[str, list[list[str]]], seconds: dict[str, str]) -> str:
    """BLEU of each system on each test set; of stored sentences how many come out as they are stored."""
    bleu = METRICS.get("bleu")()
    scores = [
        bleu.scores({name: made[place] for name, made in outputs.items()}, one.references, one.sources)
        for place, one in enumerate(sets)
    ]
    rows = []
    for name, made in outputs.items():
        cells = [name]
        for place, one in enumerate(sets):
            score = scores[place][name]
            if one.name == "stored":
                same = sum(a == b for a, b in zip(made[place], one.references, strict=True))
                cells.append(f"{same} of {len(one.references)}")
            else:
                cells.append(f"{score.value:.1f}")
            if not place:
                cells.append("" if score.p_value is None else shown_p_value(score.p_value))
        rows.append([*cells, seconds.get(name, "")])
    heads = ["", *(f"{one.name}, BLEU" if one.name != "stored" else "stored" for one in sets), "training"]
    heads.insert(2, "p")
    return markdown(heads, rows)


if __name__ == "__main__":
    main()
