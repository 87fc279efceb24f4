"""The search for a translation: what generate() of Transformers computes, number for number, in torch alone.

Importing that generate() takes longer than translating a page with a model of this size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from knn_seq.models.log_probs import log_softmax

Scores = Callable[[Tensor], Tensor]
"""The logits after each prefix, (rows, t) to (rows, vocabulary) float32, which may be written into; once a step."""

NEVER = -1.0e9  # added to the score of what must not be chosen


class SearchOutput(NamedTuple):
    """What a search has found."""

    sequences: Tensor  # (outputs, longest): what was there before the first step included, filled up with the end
    scores: Tensor  # (outputs,): the sum of log p of the tokens behind that, their end included


def step_by_step(
    scores: Scores,
    prefixes: Tensor,
    choose: Callable[[Tensor], Tensor],
    end: int,
    max_new_tokens: int,
    banned: list[int],
) -> SearchOutput:
    """One token after the other, and no way back.

    Args:
        scores: The model.
        prefixes: What is there before the first step, (rows, t).
        choose: The next token of each row, (rows,), from its log-probabilities, (rows, vocabulary).
        end: The token that ends a row, and fills what is behind.
        max_new_tokens: Steps at the most.
        banned: Tokens that are never chosen.

    Returns:
        An output for each row.
    """
    running = torch.ones(len(prefixes), dtype=torch.bool, device=prefixes.device)
    totals = torch.zeros(len(prefixes), device=prefixes.device)
    for _ in range(max_new_tokens):
        log_probs = log_softmax(scores(prefixes))
        log_probs[:, banned] = -torch.inf
        tokens = choose(log_probs).masked_fill_(~running, end)
        totals += log_probs.gather(1, tokens.unsqueeze(1)).squeeze(1).masked_fill_(~running, 0.0)
        del log_probs  # so that the next step computes in the same memory, which the CPU has at hand
        prefixes = torch.cat([prefixes, tokens.unsqueeze(1)], dim=1)
        running &= tokens != end
        if not running.any():
            break
    return SearchOutput(prefixes, totals)


def greedy(log_probs: Tensor) -> Tensor:
    """The best token of each row."""
    return log_probs.argmax(dim=1)


def sampler(temperature: float, top_k: int, top_p: float) -> Callable[[Tensor], Tensor]:
    """Draws a token of each row.

    Args:
        temperature: Divides the log-probabilities.
        top_k: Draws among so many most probable tokens; 0: among all.
        top_p: Draws among the most probable tokens that together have this probability.
    """

    def draw(log_probs: Tensor) -> Tensor:
        logits = log_probs / temperature
        if top_k:
            least = logits.topk(min(top_k, logits.shape[1])).values[:, -1:]
            logits = logits.masked_fill(logits < least, -torch.inf)
        if top_p < 1:
            ascending, order = logits.sort(dim=1)
            rare = ascending.softmax(dim=1).cumsum(dim=1) <= 1 - top_p
            rare[:, -1] = False  # the best one stays in any case
            logits = logits.masked_fill(torch.empty_like(rare).scatter_(1, order, rare), -torch.inf)
        return torch.multinomial(logits.softmax(dim=1), num_samples=1).squeeze(1)

    return draw


def beam_search(
    scores: Scores,
    reorder: Callable[[Tensor], None],
    prefixes: Tensor,
    beams: int,
    nbest: int,
    end: int,
    max_new_tokens: int,
    length_penalty: float,
    banned: list[int],
) -> SearchOutput:
    """The best outputs of each sentence by log p / length ** length_penalty.

    A sentence is done when its best open prefix, taken as it is, is worse than all of its finished outputs.

    Args:
        scores: The model.
        reorder: Told, after each step, which row each row continues, (rows,).
        prefixes: What is there before the first step, (sentences × beams, t), the beams of a sentence together.
        beams: Prefixes that are kept open, and outputs that are kept.
        nbest: Outputs to return.
        end: The token that ends an output, and fills what is behind.
        max_new_tokens: Steps at the most.
        length_penalty: See above.
        banned: Tokens that are never chosen.

    Returns:
        The outputs of all sentences, the best of a sentence first.
    """
    sentences, start = len(prefixes) // beams, prefixes.shape[1]
    open_ = prefixes.view(sentences, beams, start)
    open_scores = torch.zeros(sentences, beams, device=prefixes.device)
    open_scores[:, 1:] = NEVER  # all beams are the same at first: one of them counts
    done, done_scores = open_, torch.full_like(open_scores, NEVER)
    is_done = torch.zeros_like(open_scores, dtype=torch.bool)
    hopeful = torch.ones(sentences, 1, dtype=torch.bool, device=prefixes.device)
    first_row = beams * torch.arange(sentences, device=prefixes.device).unsqueeze(1)
    for length in range(1, max_new_tokens + 1):
        log_probs = log_softmax(scores(open_.flatten(0, 1)))
        log_probs[:, banned] = -torch.inf
        vocabulary = log_probs.shape[1]
        totals = (log_probs.view(sentences, beams, vocabulary) + open_scores.unsqueeze(2)).flatten(1)
        # As many again as there are beams: should all the best of them end, others can be continued.
        best, places = totals.topk(2 * beams)
        parents, tokens = places // vocabulary, places % vocabulary
        candidates = torch.cat([_rows(open_, parents), tokens.unsqueeze(2)], dim=2)
        ended = (tokens == end) | (length == max_new_tokens)

        continued = best + ended.float() * NEVER
        chosen = continued.topk(beams).indices
        open_, open_scores = _rows(candidates, chosen), continued.gather(1, chosen)
        reorder((parents.gather(1, chosen) + first_row).flatten())

        # Only a candidate among the first, that is no worse than an open beam, counts as an output.
        new = ended & (torch.arange(2 * beams, device=ended.device) < beams)
        new_scores = best / length**length_penalty + (~hopeful).float() * NEVER + (~new).float() * NEVER
        merged = torch.cat([done_scores, new_scores], dim=1)
        kept = merged.topk(beams).indices
        done = _rows(torch.cat([F.pad(done, (0, 1), value=end), candidates], dim=1), kept)
        done_scores, is_done = merged.gather(1, kept), torch.cat([is_done, new], dim=1).gather(1, kept)

        worst = torch.where(is_done, done_scores.amin(dim=1, keepdim=True), NEVER)
        hopeful &= (open_scores[:, :1] / length**length_penalty > worst).any(dim=1, keepdim=True)
        if not hopeful.any() or ended.all():
            break
    outputs = done[:, :nbest].flatten(0, 1)
    lengths = _lengths(outputs[:, start:], end)
    totals = done_scores[:, :nbest].flatten() * lengths.float() ** length_penalty
    return SearchOutput(outputs[:, : start + int(lengths.max())], totals)


def _rows(table: Tensor, numbers: Tensor) -> Tensor:
    """Rows of each sentence's own part of a table: (sentences, rows, t) by (sentences, n) to (sentences, n, t)."""
    return table.gather(1, numbers.unsqueeze(2).expand(-1, -1, table.shape[2]))


def _lengths(outputs: Tensor, end: int) -> Tensor:
    """The length of each output, its end counted, (outputs,)."""
    ends = outputs == end
    return torch.where(ends.any(dim=1), ends.int().argmax(dim=1) + 1, outputs.shape[1])
