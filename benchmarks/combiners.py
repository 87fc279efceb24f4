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
import gzip
import random
from pathlib import Path
from typing import Any, NamedTuple

from figures import markdown, measuring_conditions, write_figures
from results import SEED, text_of

from knn_seq import Datastore, Translator
from knn_seq.corpus import SentencePair, open_corpus, split_corpus
from knn_seq.demo.run import MODEL, write_tsv
from knn_seq.evaluate.comparison import shown_p_value
from knn_seq.metrics import METRICS
from knn_seq.models import Model, load_model
from knn_seq.settings import ModelSettings
from knn_seq.tune import tune

TRAINED = ("learned", "adaptive", "robust", "kster")
GENERAL = Path(__file__).with_name("general.pt-en.tsv")
GAMES = ("aisleriot", "gbrainy", "gnome-chess", "gnome-robots", "gnome-mines", "ksudoku", "quadrapassel", "ufoai-misc")
DEV, TEST, STORED, GAME_STRINGS = 200, 500, 30, 250
SENTENCES = {"bible": 12_000, "it": 40_000}


class TestSet(NamedTuple):
    """Sentences and their references."""

    name: str
    sources: list[str]
    references: list[str]

    @classmethod
    def of(cls, name: str, pairs: list[SentencePair]) -> TestSet:
        """A test set of sentence pairs."""
        return cls(name, [pair.source for pair in pairs], [pair.target for pair in pairs])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--domains", nargs="+", choices=SENTENCES, default=["bible"])
    parser.add_argument("--it-text", type=Path, help="what benchmarks/it_text.py made")
    parser.add_argument("--folder", type=Path, default=Path("results/combiners"))
    parser.add_argument("--into", type=Path, help="a page with a place for each domain")
    arguments = parser.parse_args()
    model = load_model(ModelSettings(MODEL))
    for domain in arguments.domains:
        conditions = measuring_conditions()
        text = measured(domain, arguments.it_text, arguments.folder / domain, model)
        write_figures(arguments.into, {f"combiners/{domain}": text}, conditions)


def measured(domain: str, it_text: Path, folder: Path, model: Model) -> str:
    """The table of a domain."""
    if domain == "it":
        pairs = it_pairs(it_text, of_games=False)
    else:
        pairs, _ = text_of(domain, it_text)
    train, dev, test = split_corpus(pairs, (DEV, TEST), SEED)
    write_tsv(folder / "train.tsv", train[: SENTENCES[domain]])
    store = Datastore.build(folder / "store", model, folder / "train.tsv")
    translator = Translator(store, model, beam_size=1)
    trained = {each.settings.combiner: each for each in translator.train(TRAINED)}
    tuned = tune(
        translator, [pair.source for pair in dev], [pair.target for pair in dev], combiner="fixed", confirm=4
    ).chosen
    systems: dict[str, dict[str, Any]] = {
        "the model alone": {"weight": 0.0},
        "`fixed`, as the build measured it": {"combiner": "fixed"},
        "`fixed`, tuned on a dev set": tuned,
        **{f"`{name}`": {"combiner": name} for name in TRAINED},
        "`learned`, `--skip learned`": {"combiner": "learned", "skip": "learned"},
    }
    sets = [TestSet.of(domain, test), *others(it_text), stored(store)]
    outputs = {
        name: [[each.text for each in translator.translate(one.sources, **options)] for one in sets]
        for name, options in systems.items()
    }
    learned = trained["learned"]
    assert learned.skip is not None
    title = (
        f"{len(train[: SENTENCES[domain]]):,} sentence pairs, {len(store):,} entries; {len(test)} test sentences; "
        f"{learned.tokens:,} tokens to train with, from one search. `--skip learned` saves {learned.skip.saved:.0%} of "
        "the searches on the datastore's sentences."
    )
    seconds = {f"`{name}`": f"{each.seconds:.1f} s" for name, each in trained.items()}
    return f"{title}\n\n{table(sets, outputs, seconds)}"


def others(it_text: Path | None) -> list[TestSet]:
    """Text of other domains."""
    general = [pair for pair in open_corpus(GENERAL) if isinstance(pair, SentencePair)]
    found = [TestSet.of("general", general)]
    if it_text is not None:
        games = it_pairs(it_text, of_games=True)
        random.Random(SEED).shuffle(games)
        found.append(TestSet.of("games", games[:GAME_STRINGS]))
    return found


def it_pairs(it_text: Path, of_games: bool) -> list[SentencePair]:
    """What programs say, those that are games or all others; the third column is package=version."""
    lines = gzip.decompress(it_text.read_bytes()).decode().splitlines()
    rows = [line.split("\t") for line in lines]
    return [
        SentencePair(source, target, name)
        for source, target, name in rows
        if (name.partition("=")[0] in GAMES) == of_games
    ]


def stored(store: Datastore) -> TestSet:
    """Some of the sentence pairs of a datastore."""
    numbers = random.Random(SEED).sample(range(len(store.texts)), STORED)
    texts = [store.texts[number] for number in numbers]
    return TestSet("stored", [source for source, _ in texts], [target for _, target in texts])


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
