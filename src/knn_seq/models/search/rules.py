"""What may not come next, or must: rules that hold after the distribution is known, in the order of Transformers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from knn_seq.models.search.distribution import Distribution
from knn_seq.models.search.sentence import Sentence


def apply_rules(distribution: Distribution, sentences: Sequence[Sentence]) -> dict[tuple[int, int], float]:
    """Change the distribution as the sentences' plans say.

    Returns:
        log p of tokens as it was before, where a rule makes it another one that is not −∞.
    """
    unruled: dict[tuple[int, int], float] = {}
    forced = _forced_ends(distribution, sentences, unruled)
    _repetition_penalty(distribution, sentences, unruled)
    _ban(distribution, sentences)
    for row, ends in forced:
        distribution.only(row, ends)
    _suppress(distribution, sentences)
    return unruled


def _ban(distribution: Distribution, sentences: Sequence[Sentence]) -> None:
    rows, tokens, first = [], [], 0
    for sentence in sentences:
        if sentence.plan.bans:
            for row, prefix in enumerate(sentence.prefixes, first):
                banned = list(_banned(sentence, prefix))
                rows += [row] * len(banned)
                tokens += banned
        first += len(sentence.prefixes)
    if tokens:
        device = distribution.stored.device
        distribution.write(torch.tensor(rows, device=device), torch.tensor(tokens, device=device), -torch.inf)


def _banned(sentence: Sentence, prefix: list[int]) -> Iterable[int]:
    """The tokens that may not continue a prefix."""
    plan, before = sentence.plan, sentence.request.forced
    if plan.no_repeat_ngram_size or plan.bad_words:
        complete = [*before, *prefix]
        if plan.no_repeat_ngram_size:
            yield from repeated_ngrams(complete, plan.no_repeat_ngram_size)
        for *beginning, last in plan.bad_words:
            if not beginning or complete[-len(beginning) :] == beginning:
                yield last
    if sentence.length < plan.min_new_tokens or len(before) + sentence.length < plan.min_length:
        yield from plan.ends
    if sentence.length == 0:
        yield from plan.begin_suppress_tokens


def repeated_ngrams(tokens: Sequence[int], size: int) -> set[int]:
    """The tokens that would complete a sequence of `size` tokens that is there already."""
    if len(tokens) < size - 1:
        return set()
    ending = list(tokens[len(tokens) - size + 1 :])
    return {
        tokens[start + size - 1]
        for start in range(len(tokens) - size + 1)
        if list(tokens[start : start + size - 1]) == ending
    }


def _repetition_penalty(
    distribution: Distribution, sentences: Sequence[Sentence], unruled: dict[tuple[int, int], float]
) -> None:
    rows: list[int] = []
    tokens: list[int] = []
    penalties: list[float] = []
    first = 0
    for sentence in sentences:
        penalty = sentence.plan.repetition_penalty
        if penalty != 1:
            for row, prefix in enumerate(sentence.prefixes, first):
                seen = {*sentence.request.forced, *prefix}
                rows += [row] * len(seen)
                tokens += seen
                penalties += [penalty] * len(seen)
        first += len(sentence.prefixes)
    if not rows:
        return
    device = distribution.stored.device
    places = torch.tensor(rows, device=device), torch.tensor(tokens, device=device)
    values = distribution.log_probs[places]
    unruled |= zip(zip(rows, tokens, strict=True), values.tolist(), strict=True)
    distribution.write(*places, values * torch.tensor(penalties, device=device))  # log p is never above 0


def _forced_ends(
    distribution: Distribution, sentences: Sequence[Sentence], unruled: dict[tuple[int, int], float]
) -> list[tuple[int, Tensor]]:
    """The rows that must end now, and with what; log p of that is remembered."""
    forced, first = [], 0
    for sentence in sentences:
        ends = sentence.plan.forced_ends
        if ends and sentence.length == sentence.plan.max_new_tokens - 1:
            tokens = torch.tensor(ends, device=distribution.stored.device)
            for row in range(first, first + len(sentence.prefixes)):
                values = distribution.log_probs[row, tokens].tolist()
                unruled |= {(row, token): value for token, value in zip(ends, values, strict=True)}
                forced.append((row, tokens))
        first += len(sentence.prefixes)
    return forced


def _suppress(distribution: Distribution, sentences: Sequence[Sentence]) -> None:
    device = distribution.stored.device
    suppressed = {sentence.plan.suppress_tokens for sentence in sentences}
    if len(suppressed) == 1:
        if common := suppressed.pop():
            distribution.ban(common)
        return
    first = 0
    for sentence in sentences:
        for row in range(first, first + len(sentence.prefixes)):
            tokens = torch.tensor(sentence.plan.suppress_tokens, dtype=torch.int64, device=device)
            distribution.write(torch.full_like(tokens, row), tokens, -torch.inf)
        first += len(sentence.prefixes)
