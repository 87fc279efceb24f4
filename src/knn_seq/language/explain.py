"""Why a text goes on as it does, for a person at a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from knn_seq.explain import Explanation
from knn_seq.explain.explanation import RetrievedToken
from knn_seq.explain.text import labelled, why_weight
from knn_seq.models import PairTokenizer
from knn_seq.storage import DatastoreFolder

SHOWN_BEFORE, SHOWN_BEHIND = 12, 4  # tokens around a neighbour


def continuation_as_text(
    explanation: Explanation, store: DatastoreFolder, tokenizer: PairTokenizer, neighbours: int
) -> str:
    """The tokens that neighbours changed, with the places of the stored text that these neighbours are from.

    Args:
        explanation: What to show.
        store: What was searched.
        tokenizer: The model's.
        neighbours: How many of a token are shown, nearest first.
    """
    return "\n".join(_lines(explanation, store, tokenizer, neighbours)) + "\n"


def _lines(
    explanation: Explanation, store: DatastoreFolder, tokenizer: PairTokenizer, neighbours: int
) -> Iterator[str]:
    changed = [token for token in explanation.tokens if token.changed]
    yield labelled("changed", f"{len(changed)} of {len(explanation.tokens)} tokens")
    for token in changed:
        yield labelled(
            "token",
            f"{token.token} for the model's {token.model_choice}, p_LM {token.model_probability:.3f}, "
            f"p_kNN {token.neighbour_probability:.3f}, p {token.probability:.3f}",
        )
        yield labelled("λ", why_weight(token))
        for one in token.neighbours[:neighbours]:
            place = stored_place(one, store, tokenizer)
            yield labelled("", f"{one.probability:.2f} {one.token} at {one.distance:.4g}: {place}")


def stored_place(neighbour: RetrievedToken, store: DatastoreFolder, tokenizer: PairTokenizer) -> str:
    """The stored text around a neighbour's token, which stands in brackets."""
    context, tokens = store.sources[neighbour.sentence].tolist(), store.targets[neighbour.sentence].tolist()
    text, place = [*context, *tokens], len(context) + neighbour.position
    before = tokenizer.plain_text(text[max(place - SHOWN_BEFORE, 0) : place])
    behind = tokenizer.plain_text(text[place + 1 : place + 1 + SHOWN_BEHIND])
    return f"…{before}[{tokenizer.plain_text([text[place]])}]{behind}…"
