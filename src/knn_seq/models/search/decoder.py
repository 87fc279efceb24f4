from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor


class DecoderStep(NamedTuple):
    """What a model computes for one step, a row for each prefix that is open."""

    logits: Tensor  # (rows, vocabulary), in the model's dtype; the search may write into them
    queries: Tensor  # (rows, dimension): the hidden states that neighbours are searched with
    vocabulary: Tensor | None = None  # the only tokens that can come, ascending, of which the logits are; None: all
    attention: Tensor | None = None  # (rows, source tokens): where the model looks, if it can tell and was asked


class RowDecoder(ABC):
    """A model that computes step by step what follows the open prefixes of some sentences.

    Every sentence has the same number of rows, which lie together: sentence s has the rows s × rows_each and following.
    """

    joins = False  # whether sentences can enter while others are under way
    rows_each: int  # rows of a sentence
    vocabulary_size: int | None = None  # for one that says which tokens can come
    source_bytes: float = math.inf  # of the weights that every token of a source is multiplied by; unknown: any number
    step_bytes: float = math.inf  # of those that every row of a step is

    @abstractmethod
    def enter(self, sources: Sequence[Sequence[int]]) -> None:
        """Read some sources, or prompts, and add rows for them behind all others."""

    @abstractmethod
    def step(self, tokens: Tensor) -> DecoderStep:
        """What follows each prefix.

        Args:
            tokens: The last token of each prefix, (rows,) int64, on the CPU; of a sentence that has just entered the
                last of what was forced before its first step.
        """

    @abstractmethod
    def follow(self, parents: Tensor) -> None:
        """Let every row continue the prefix of another of its sentence, (rows,) int64, on the CPU."""

    @abstractmethod
    def keep(self, sentences: Sequence[int]) -> None:
        """Drop all sentences but these, and have these in this order."""

    def logits_of(self, rows: Tensor, tokens: Tensor) -> Tensor:
        """Of one that says which tokens can come: logits of any tokens in some rows of the last step, (n,) each."""
        raise NotImplementedError(f"{type(self).__name__} has the logits of all tokens")
