from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor

from knn_seq.combine import Combination, mix_tokens, neighbour_probability
from knn_seq.decoding import KnnDecoder, Translation
from knn_seq.explain.explanation import Explanation, RetrievedToken, TokenExplanation
from knn_seq.explain.reasons import UsualDistance, reasons
from knn_seq.likelihood import Predictions, Reference, predict_batches
from knn_seq.settings import SearchSettings
from knn_seq.storage import DatastoreFolder
from knn_seq.storage.translation_memory import TranslationMemory
from knn_seq.translator import Translator

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from knn_seq.settings import TranslateOptions


class Probabilities(NamedTuple):
    """What decoding made of the tokens of some translations, a row a token."""

    combination: Combination
    mixture: Tensor  # (rows,) float64: p of the token
    choice_mixture: Tensor  # (rows,) float64: p of the token that the model alone holds most likely
    changed: Tensor  # (rows,) bool: neighbours made the token more likely than the model's choice


def explain(
    translator: Translator,
    translations: Sequence[Translation],
    neighbours: int | None = None,
    **options: Unpack[TranslateOptions],
) -> list[Explanation]:
    """Trace translations to the model and to the neighbours of each of their tokens.

    They are read again under teacher forcing, so any translation can be explained, not only the translator's.

    Args:
        translator: The translator.
        translations: What it, or somebody else, made of their sources.
        neighbours: How many neighbours of each token are told of, nearest first; None: all.  All of them count.
        **options: Search settings; give those that the translations were made with.
    """
    decoder = _current(translator)
    settings, _ = translator.settings(options)
    name = cache(translator.model.tokenizer.token)
    explanations = [Explanation(translation, []) for translation in translations]
    usual = UsualDistance.known(decoder, settings)
    for numbers, predictions in _predictions(translator, decoder, translations, settings):
        retrieved = _probabilities(decoder, predictions, settings)
        found = _retrieved(predictions, retrieved.combination, decoder.store, name, neighbours)
        tokens = _explained(predictions, retrieved, found, name, usual)
        for number in numbers:
            explanations[number].tokens.extend(islice(tokens, len(translations[number].tokens)))
    return explanations


def changed_tokens(
    translator: Translator, translations: Sequence[Translation], **options: Unpack[TranslateOptions]
) -> list[list[bool]]:
    """Which tokens of each translation the neighbours changed: `TokenExplanation.changed`, at less cost.

    Args:
        translator: The translator.
        translations: What it, or somebody else, made of their sources.
        **options: Search settings; give those that the translations were made with.
    """
    decoder = _current(translator)
    settings, _ = translator.settings(options)
    flags: list[list[bool]] = [[] for _ in translations]
    for numbers, predictions in _predictions(translator, decoder, translations, settings):
        changed = iter(_probabilities(decoder, predictions, settings).changed.tolist())
        for number in numbers:
            flags[number] = list(islice(changed, len(translations[number].tokens)))
    return flags


def _current(translator: Translator) -> KnnDecoder:
    """The translator's decoder, which keeps the newest generation of the datastore while others change it."""
    translator.decoder.refresh()
    return translator.decoder.frozen()


def _predictions(
    translator: Translator, decoder: KnnDecoder, translations: Sequence[Translation], settings: SearchSettings
) -> Iterator[tuple[list[int], Predictions]]:
    """The numbers of some translations, and what is predicted at their tokens; empty ones are passed over."""
    written = [number for number, translation in enumerate(translations) if translation.tokens]
    if not written:
        return
    sources, _ = translator.read([translations[number].source for number in written])
    references = [
        Reference(source, translations[number].tokens) for number, source in zip(written, sources, strict=True)
    ]
    for batch, [predictions] in predict_batches(decoder, references, [settings]):
        yield [written[place] for place in batch], predictions


def _probabilities(decoder: KnnDecoder, predictions: Predictions, settings: SearchSettings) -> Probabilities:
    combination = decoder.combiner(settings).combine(predictions.inputs, settings)
    # In float64 also a token is possible that float32 would hold impossible.
    mixture, choice_mixture = (
        mix_tokens(tokens, log_probs.double(), predictions.neighbours, combination).exp()
        for tokens, log_probs in (
            (predictions.targets, predictions.log_probs),
            (predictions.choices, predictions.choice_log_probs),
        )
    )
    changed = (predictions.targets != predictions.choices) & (mixture > choice_mixture)
    return Probabilities(combination, mixture, choice_mixture, changed)


def _explained(
    predictions: Predictions,
    probabilities: Probabilities,
    neighbours: list[list[RetrievedToken]],
    name: Callable[[int], str],
    usual: UsualDistance | None,
) -> Iterator[TokenExplanation]:
    combination = probabilities.combination
    nearest, relative, agreement = zip(*reasons(predictions.neighbours, combination, usual), strict=True)
    columns = (
        map(name, predictions.targets.tolist()),
        probabilities.mixture.tolist(),
        predictions.log_probs.double().exp().tolist(),
        neighbour_probability(predictions.targets, predictions.neighbours, combination).tolist(),
        combination.row_weights().tolist(),
        map(name, predictions.choices.tolist()),
        probabilities.choice_mixture.tolist(),
        probabilities.changed.tolist(),
        nearest,
        relative,
        agreement,
        predictions.choice_log_probs.double().exp().tolist(),
        neighbours,
    )
    return (TokenExplanation(*row) for row in zip(*columns, strict=True))


def _retrieved(
    predictions: Predictions,
    combination: Combination,
    store: DatastoreFolder | TranslationMemory,
    name: Callable[[int], str],
    most: int | None,
) -> list[list[RetrievedToken]]:
    """The neighbours of each row."""
    nearest = predictions.neighbours.nearest(predictions.neighbours.ids.shape[1] if most is None else most)
    sentences, positions = store.locate(nearest.ids.numpy())
    columns = (
        nearest.ids.tolist(),
        sentences.tolist(),
        positions.tolist(),
        [list(map(name, values)) for values in nearest.values.tolist()],
        nearest.distances.tolist(),
        combination.probabilities[:, : nearest.ids.shape[1]].tolist(),
    )
    rows = zip(*columns, strict=True)
    return [[RetrievedToken(*one) for one in zip(*row, strict=True) if one[0] >= 0] for row in rows]
