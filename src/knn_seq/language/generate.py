"""Continue a prompt, token by token."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor

from knn_seq.decoding import Translation
from knn_seq.errors import KnnSeqError
from knn_seq.models import Source, Step
from knn_seq.translator import Translator

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from knn_seq.settings import TranslateOptions

HALF_A_CHARACTER = "\N{REPLACEMENT CHARACTER}"


class Continuation(NamedTuple):
    """A prompt and what was written behind it."""

    text: str
    prompt: Source
    output: Translation  # with tokens and score


def generate(
    translator: Translator,
    prompt: str,
    on_text: Callable[[str], None] | None = None,
    **options: Unpack[TranslateOptions],
) -> Continuation:
    """Continue a prompt with the neighbours of a language model's datastore.

    Args:
        translator: A translator with a datastore that was built from plain text.
        prompt: The text to continue.
        on_text: Called with each piece of text as soon as it is certain; beam search, which may take words back, gives
            all of it at the end.
        **options: Fields of `SearchSettings` and `DecodingSettings`.
    """
    tokenizer, model = translator.model.tokenizer, translator.model
    tokens = [*tokenizer.text_start, *tokenizer.encode_text(prompt)]
    if not tokens:
        raise KnnSeqError("There is no prompt to continue: give some text.")
    search, decoding = translator.settings(options)
    longest = (model.window or len(tokens) + 1) - 1
    tokens = tokens[-min(longest, max(longest - getattr(decoding, "max_length", 0), longest // 2)) :]
    source = Source(prompt, tokens)
    stream = _Stream(lambda written: _text(translator, tokens, written), on_text)
    streams = getattr(decoding, "beam_size", 1) == 1 or getattr(decoding, "sample", False)
    [[best, *_]] = translator.decode([source], search, decoding, stream.see if streams else None)
    text = _text(translator, tokens, best.tokens)
    stream.finish(text)
    return Continuation(text, source, Translation(text, prompt, best.tokens, best.score))


class _Stream:
    """Hands on what a search has written so far, whenever there is more of it."""

    def __init__(self, text_of: Callable[[list[int]], str], on_text: Callable[[str], None] | None) -> None:
        self.text_of, self.on_text, self.told = text_of, on_text, 0

    def see(self, step: Step) -> Tensor:
        """A step hook that changes nothing."""
        if self.on_text is not None and step.prefixes.shape[1]:
            text = self.text_of(step.prefixes[0].tolist())
            if not text.endswith(HALF_A_CHARACTER):
                self._tell(text)
        return step.log_probs

    def finish(self, text: str) -> None:
        """The complete text."""
        if self.on_text is not None:
            self._tell(text)

    def _tell(self, text: str) -> None:
        assert self.on_text is not None
        if len(text) > self.told:
            self.on_text(text[self.told :])
            self.told = len(text)


def _text(translator: Translator, prompt: list[int], written: list[int]) -> str:
    """What tokens write behind a prompt: a tokenizer may leave out the space of a first word."""
    decode = translator.model.tokenizer.plain_text
    before = decode(prompt)
    together = decode([*prompt, *written])
    return together[len(before) :] if together.startswith(before) else decode(written)
