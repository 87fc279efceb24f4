from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

STEPS = 32  # for so many more there is place whenever it runs out


class BeamCache:
    """Keys and values of all steps of some sentences, each sentence at a step of its own.

    Beams are never copied.  What the rows of a sentence computed at a step stays where it is, and a table of ancestors
    says which of it is the past of which row: attention sees the past of all rows and is masked to a row's own.

    Args:
        layers: Of the decoder.
        heads: Of its attention.
        size: Of a head.
        rows_each: Rows of a sentence.
        like: Has the device and the dtype.
    """

    def __init__(self, layers: int, heads: int, size: int, rows_each: int, like: Tensor) -> None:
        self.rows_each = rows_each
        # Own: steps × rows of a sentence, step by step.  Source: its positions.
        self.own = like.new_empty(layers, 2, 0, heads, 0, size)
        self.source = like.new_empty(layers, 2, 0, heads, 0, size)
        self.source_mask = like.new_empty(0, 1, 1, 0)
        self.ancestors = torch.empty(0, rows_each, 0, dtype=torch.int64, device=like.device)  # -1: not yet
        self.lengths: list[int] = []  # steps of each sentence
        self.source_lengths: list[int] = []

    def enter(self, memory: Sequence[tuple[Tensor, Tensor]], mask: Tensor, lengths: Sequence[int]) -> None:
        """Add sentences.

        Args:
            memory: Keys and values of the source for each layer, (new, heads, source length, size) each.
            mask: 1 for a source token, 0 for padding, (new, source length).
            lengths: Tokens of each source, which the host need not ask a GPU for.
        """
        first, new, length = len(self.lengths), len(mask), mask.shape[1]
        self._grow(first + new, self.steps, max([length, *self.source_lengths]))
        place = slice(first, first + new)
        for layer, (keys, values) in zip(self.source, memory, strict=True):
            layer[0, place, :, :length] = keys
            layer[1, place, :, :length] = values
        hidden = torch.finfo(self.own.dtype).min
        self.source_mask[place] = hidden
        self.source_mask[place, 0, 0, :length] = torch.where(mask == 0, hidden, 0.0).to(self.own.dtype)
        self.ancestors[place] = -1
        self.lengths += [0] * new
        self.source_lengths += lengths

    @property
    def steps(self) -> int:
        """Of the sentence that is farthest."""
        return max(self.lengths, default=0)

    def begin(self, sentences: slice) -> tuple[Tensor | None, Tensor | None]:
        """Begin a step of some sentences.

        Returns:
            What attention adds to its scores for the sentences' own past, (sentences, 1, rows_each, places), and for
            their sources, (sentences, 1, 1, length); None: nothing.
        """
        lengths = self.lengths[sentences]
        self._grow(len(self.lengths), max(lengths) + 1, self.source.shape[4])
        rows = torch.arange(self.rows_each, device=self.ancestors.device)
        at = torch.tensor(lengths, device=rows.device)
        numbers = torch.arange(sentences.start, sentences.stop, device=rows.device)
        self.ancestors[numbers.unsqueeze(1), rows, at.unsqueeze(1)] = rows
        self.lengths[sentences] = [length + 1 for length in lengths]
        # Where each row of each sentence writes what it computes: one range for all, or its own.
        self._same = lengths[0] if min(lengths) == max(lengths) else None
        self._slots = numbers.unsqueeze(1), (at * self.rows_each).unsqueeze(1) + rows
        self._sentences = sentences
        self._places = (max(lengths) + 1) * self.rows_each
        own = None
        if self._same is None or self.rows_each > 1:
            ancestors = self.ancestors[sentences, :, : max(lengths) + 1]
            seen = (ancestors.unsqueeze(3) == rows).flatten(2).unsqueeze(1)
            own = torch.zeros(seen.shape, dtype=self.own.dtype, device=rows.device)
            own.masked_fill_(~seen, torch.finfo(own.dtype).min)
        source_lengths = self.source_lengths[sentences]
        self._source_length = max(source_lengths)
        uniform = min(source_lengths) == self._source_length
        return own, None if uniform else self.source_mask[sentences, ..., : self._source_length]

    def add(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Keep what a layer computed, (sentences, rows_each, heads, size) each; returns all that is there of its past.

        Returns:
            Keys and values, (sentences, heads, places, size) each.
        """
        own = self.own[layer]
        if self._same is not None:
            place = slice(self._same * self.rows_each, (self._same + 1) * self.rows_each)
            own[0, self._sentences, :, place] = keys.transpose(1, 2)
            own[1, self._sentences, :, place] = values.transpose(1, 2)
        else:
            sentences, slots = self._slots
            own[0][sentences, :, slots] = keys
            own[1][sentences, :, slots] = values
        past = own[:, self._sentences, :, : self._places]
        return past[0], past[1]

    def memory(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values of the source, (sentences, heads, length, size) each."""
        found = self.source[layer, :, self._sentences, :, : self._source_length]
        return found[0], found[1]

    def follow(self, parents: Tensor) -> None:
        """Let every row continue the past of another of its sentence, (sentences × rows_each,)."""
        within = parents.to(self.ancestors.device).view(-1, self.rows_each, 1) % self.rows_each
        ancestors = self.ancestors[: len(within)]
        ancestors.copy_(ancestors.gather(1, within.expand(-1, -1, ancestors.shape[2])))

    def keep(self, sentences: Sequence[int]) -> None:
        """Drop all sentences but these; only those move that get another place."""
        moves = [(old, new) for new, old in enumerate(sentences) if old != new]
        taken = {new for _, new in moves}
        if any(old in taken for old, _ in moves):  # some are in each other's way
            index = torch.tensor(sentences, device=self.ancestors.device)
            self.own, self.source = self.own.index_select(2, index), self.source.index_select(2, index)
            self.source_mask, self.ancestors = self.source_mask[index], self.ancestors[index]
        else:
            for old, new in moves:
                used, length = self.lengths[old] * self.rows_each, self.source_lengths[old]
                self.own[:, :, new, :, :used] = self.own[:, :, old, :, :used]
                self.source[:, :, new, :, :length] = self.source[:, :, old, :, :length]
                self.source_mask[new], self.ancestors[new] = self.source_mask[old], self.ancestors[old]
        self.lengths = [self.lengths[old] for old in sentences]
        self.source_lengths = [self.source_lengths[old] for old in sentences]

    def _grow(self, sentences: int, steps: int, source_length: int) -> None:
        """Make place for so many, if there is not."""
        have, places = self.ancestors.shape[0], self.ancestors.shape[2]
        if sentences > have or steps > places:
            grown = max(sentences, have), (steps + STEPS - 1) // STEPS * STEPS if steps > places else places
            self.own = _larger(self.own, 2, grown[0], grown[1] * self.rows_each)
            ancestors = self.ancestors.new_full((grown[0], self.rows_each, grown[1]), -1)
            ancestors[:have, :, :places] = self.ancestors
            self.ancestors = ancestors
        if sentences > self.source.shape[2] or source_length > self.source.shape[4]:
            before = self.source_mask
            self.source = _larger(self.source, 2, max(sentences, have), max(source_length, self.source.shape[4]))
            self.source_mask = before.new_full(
                (self.source.shape[2], 1, 1, self.source.shape[4]), torch.finfo(before.dtype).min
            )
            self.source_mask[: len(before), ..., : before.shape[3]] = before


def _larger(table: Tensor, dimension: int, sentences: int, places: int) -> Tensor:
    """A copy with more sentences and more places, zeros in them: what is masked must still be a number."""
    shape = list(table.shape)
    shape[dimension], shape[dimension + 2] = sentences, places
    larger = table.new_zeros(shape)
    larger[:, :, : table.shape[2], :, : table.shape[4]] = table
    return larger
