"""Explanations for a person at a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import fill

from knn_seq.explain.explanation import Explanation, TokenExplanation
from knn_seq.explain.words import words_of
from knn_seq.models import PairTokenizer
from knn_seq.storage import DatastoreFolder
from knn_seq.storage.translation_memory import TranslationMemory

WIDTH, INDENT = 110, 13
LEAST_DISTANCE = 1e-3  # what is nearer is the same but for rounding
SENTENCES = 2  # that contributed most to a translation


def as_text(
    explanation: Explanation, store: DatastoreFolder | TranslationMemory, tokenizer: PairTokenizer, neighbours: int
) -> str:
    """A translation with the sentences behind it, and with the neighbours of each word that they changed.

    Args:
        explanation: What to show.
        store: What was searched.
        tokenizer: The model's.
        neighbours: How many of a word are shown, nearest first.
    """
    translation = explanation.translation
    lines = [labelled("source", translation.source), labelled("translation", translation.text)]
    for sentence, mass in explanation.sentences()[:SENTENCES]:
        source, target = store.texts[sentence]
        info = store.pairs[sentence]
        told = ", ".join(filter(None, (info.id, info.corpus, info.date)))
        lines.append(labelled("example", f"({mass:.1f} tokens) {target}  ←  {source}  [{told}]"))
    for word, places in words_of(translation.text, translation.tokens, tokenizer):
        tokens = [explanation.tokens[place] for place in places]
        changed = next((token for token in tokens if token.changed), None)
        if changed is not None:
            lines += _changed_word(word, changed, store, neighbours)
    return "\n".join(lines) + "\n"


def labelled(label: str, text: str) -> str:
    """A text of any length behind its label."""
    return fill(text, width=WIDTH, initial_indent=f"{label:>{INDENT - 2}}  ", subsequent_indent=" " * INDENT)


def why_weight(token: TokenExplanation) -> str:
    """λ of a token, and what it depends on."""
    weight, certainty = f"{token.weight:.2f}", f"the model's certainty {token.model_certainty:.3f}"
    if token.nearest_distance is None or token.agreement is None:
        return f"{weight}: no neighbours, {certainty}"
    usual = "" if token.relative_distance is None else f" ({token.relative_distance:.2f} of the usual distance)"
    nearest = token.nearest_distance if abs(token.nearest_distance) >= LEAST_DISTANCE else 0.0
    return f"{weight}: nearest at {nearest:.4g}{usual}, {token.agreement:.0%} agree, {certainty}"


def _changed_word(
    word: str, token: TokenExplanation, store: DatastoreFolder | TranslationMemory, neighbours: int
) -> Iterator[str]:
    yield labelled(
        "changed",
        f"{word}: {token.token} for the model's {token.model_choice}, "
        f"p_MT {token.model_probability:.3f}, p_kNN {token.neighbour_probability:.3f}, p {token.probability:.3f}",
    )
    yield labelled("λ", why_weight(token))
    for one in token.neighbours[:neighbours]:
        source, target = store.texts[one.sentence]
        yield labelled("", f"{one.probability:.2f} {one.token} at {one.distance:.4g}: {target}  ←  {source}")
