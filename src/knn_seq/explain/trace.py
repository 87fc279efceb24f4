from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import islice

from knn_seq.datastore import Datastore
from knn_seq.explain.evidence import Evidence, Explanation, Vote
from knn_seq.explain.reading import Reading, read_again
from knn_seq.memory import TranslationMemory
from knn_seq.translate import Translator
from knn_seq.translation import Translation


def explain(
    translator: Translator, translations: Sequence[Translation], votes: int | None = None, **settings: object
) -> list[Explanation]:
    """Trace translations to the model and to the neighbours of each of their tokens.

    They are read again under teacher forcing, so any translation can be explained, not only the translator's.

    Args:
        translator: The translator.
        translations: What it, or somebody else, made of their sources.
        votes: How many neighbours of each token are told of, nearest first; None: all.  All of them count.
        **settings: Search settings; give those that the translations were made with.
    """
    search, _ = translator.settings(settings)
    name = cache(translator.model.tokenizer.token)
    explanations = [Explanation(translation, []) for translation in translations]
    for reading in read_again(translator, translations, search):
        evidence = _evidence(reading, _votes(reading, translator.store, name, votes), name)
        for number, size in zip(reading.numbers, reading.sizes, strict=True):
            explanations[number].tokens.extend(islice(evidence, size))
    return explanations


def changed_tokens(translator: Translator, translations: Sequence[Translation], **settings: object) -> list[list[bool]]:
    """Which tokens of each translation the neighbours changed: `Evidence.changed`, at less cost.

    Args:
        translator: The translator.
        translations: What it, or somebody else, made of their sources.
        **settings: Search settings; give those that the translations were made with.
    """
    search, _ = translator.settings(settings)
    flags: list[list[bool]] = [[] for _ in translations]
    for reading in read_again(translator, translations, search):
        changed = iter(reading.changed.tolist())
        for number, size in zip(reading.numbers, reading.sizes, strict=True):
            flags[number] = list(islice(changed, size))
    return flags


def _evidence(reading: Reading, votes: list[list[Vote]], name: Callable[[int], str]) -> Iterator[Evidence]:
    columns = (
        map(name, reading.tokens.tolist()),
        reading.mixture.tolist(),
        reading.model.tolist(),
        reading.votes.tolist(),
        reading.weights.tolist(),
        map(name, reading.choices.tolist()),
        reading.choice_mixture.tolist(),
        reading.changed.tolist(),
        votes,
    )
    return (Evidence(*row) for row in zip(*columns, strict=True))


def _votes(
    reading: Reading, store: Datastore | TranslationMemory, name: Callable[[int], str], most: int | None
) -> list[list[Vote]]:
    """The votes of each row."""
    nearest = reading.neighbours.nearest(reading.neighbours.ids.shape[1] if most is None else most)
    sentences, positions = store.locate(nearest.ids.cpu().numpy())
    columns = (
        nearest.ids.tolist(),
        sentences.tolist(),
        positions.tolist(),
        [list(map(name, values)) for values in nearest.values.tolist()],
        nearest.distances.tolist(),
        reading.shares[:, : nearest.ids.shape[1]].tolist(),
    )
    rows = zip(*columns, strict=True)
    return [[Vote(*vote) for vote in zip(*row, strict=True) if vote[0] >= 0] for row in rows]
