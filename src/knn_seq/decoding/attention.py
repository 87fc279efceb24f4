"""Where a model looked when it wrote translations, computed again from what it wrote."""

from __future__ import annotations

from collections.abc import Sequence

from knn_seq.decoding.translation import Translation
from knn_seq.models import Model, Source, TokenPair
from knn_seq.models.token_spans import Span, output_spans, source_spans
from knn_seq.protect import Attention

AT_ONCE = 32  # translations


def attention_of(
    model: Model, sources: Sequence[Source], translations: Sequence[Translation]
) -> list[Attention | None]:
    """Where the model looked; None for each of a model that cannot tell, and for what has no tokens.

    Args:
        model: The model.
        sources: What it has read.
        translations: What it, or somebody else, has written.
    """
    found: list[Attention | None] = [None] * len(sources)
    numbers = sorted(
        (number for number, translation in enumerate(translations) if translation.tokens),
        key=lambda number: len(translations[number].tokens),
    )
    for start in range(0, len(numbers), AT_ONCE):
        some = numbers[start : start + AT_ONCE]
        weights = model.attention([TokenPair(sources[number].tokens, translations[number].tokens) for number in some])
        if weights is None:
            break
        for number, looks in zip(some, weights, strict=True):
            source, translation = sources[number], translations[number]
            written: list[Span | None] = [None] * len(translation.tokens)
            for place, first, last in output_spans(translation, translation.tokens, model.tokenizer):
                written[place] = (first, last)
            read = source_spans(source.text, source.tokens, model.tokenizer)
            found[number] = Attention(read, written, looks.cpu().numpy())
    return found
