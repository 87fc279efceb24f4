"""The pieces of everything that may be written for a term."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class PieceTrie:
    """A tree of token sequences: what may follow those that have begun."""

    __slots__ = ("complete", "next")

    def __init__(self, sequences: Iterable[Sequence[int]] = ()) -> None:
        self.next: dict[int, PieceTrie] = {}
        self.complete = False  # one of the sequences ends here
        for sequence in sequences:
            node = self
            for token in sequence:
                node = node.next.setdefault(token, PieceTrie())
            node.complete = True

    def after(self, tokens: Sequence[int]) -> PieceTrie | None:
        """What may follow some tokens; None: no sequence begins with them."""
        node: PieceTrie | None = self
        for token in tokens:
            node = node.next.get(token) if node is not None else None
        return node
