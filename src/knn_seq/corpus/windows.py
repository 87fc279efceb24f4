"""Plain text for language models, in windows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from knn_seq.corpus.base import CorpusReader
from knn_seq.corpus.corpus import Corpus
from knn_seq.corpus.files import open_bytes
from knn_seq.corpus.pair import BadPair, SentencePair
from knn_seq.errors import DamagedFile, InvalidSetting, KnnSeqError
from knn_seq.registry import Option

LONGEST_WINDOW = 1024  # tokens, if nobody says otherwise and the model can read more
BLOCK_BYTES = 4 << 20  # of text that are tokenized at a time; a larger file is cut at ends of lines
SHOWN_TOKENS = 32  # of what a window's tokens continue, for explanations
PROMPT = "{source}"  # a language model reads the text and nothing else


class Window(NamedTuple):
    """Some tokens of a text, and the tokens before them."""

    context: list[int]
    tokens: list[int]


class WindowReader(CorpusReader):
    """A plain text as one stream of tokens, each predicted once: the sliding window that perplexity is computed with.

    A window has `context` tokens and then `stride` tokens, which are those that are predicted; the first window is
    predicted completely but for its first token, in parts of at most `stride` tokens that see all before them.
    """

    options = {
        "stride": Option(None, "tokens of a window that are predicted (default: half of it)", int, 1),
        "context": Option(None, "tokens before these that the model reads (default: what the window leaves)", int, 1),
    }

    def bind(self, model: Any) -> None:
        """Take the model's tokenizer, and its window where none was given."""
        self.tokenizer = model.tokenizer
        longest: int | None = model.window
        window = min(longest or LONGEST_WINDOW, LONGEST_WINDOW)
        stride, context = (self.option_values[name] for name in ("stride", "context"))
        self.stride: int = stride or (max(window - context, 1) if context else max(window // 2, 1))
        self.context: int = context or max(window - self.stride, 1)
        if longest is not None and self.context + self.stride > longest:
            raise InvalidSetting(
                f"The model reads {longest} tokens at a time: a context of {self.context} and a stride of "
                f"{self.stride} are more."
            )
        self.tokenizer.encode_text("")  # a model that reads no plain text is refused at once

    def model_options(self) -> dict[str, Any]:
        """The text is all that the model reads."""
        return {"prompt": PROMPT}

    def inferred(self) -> dict[str, Any]:
        """The window."""
        return {"stride": self.stride, "context": self.context}

    def longest_side(self) -> int | None:
        """As long as a window is."""
        return self.context + self.stride

    def describe(self) -> str:
        """The file's name."""
        return self.paths[0].name

    def pairs(self, start: int = 0) -> Iterator[SentencePair | BadPair]:
        """A pair for each window: its context, and the tokens that are predicted."""
        for number, (context, tokens) in enumerate(islice(self.windows(), start, None), start + 1):
            shown = self.tokenizer.plain_text(context[-SHOWN_TOKENS:])
            text = self.tokenizer.plain_text(tokens)
            yield SentencePair(shown, text, f"window {number}", tuple(context), tuple(tokens))

    def windows(self) -> Iterator[Window]:
        """The windows of the text."""
        seen: list[int] = []  # the last tokens
        predicted = 0  # of these, at the end; what is before them was in other windows
        first = (self.context + self.stride) % self.stride or self.stride  # so that the first window ends with a part
        length = first
        for token in self.tokens():
            seen.append(token)
            predicted += 1
            if predicted == length:
                yield from self._window(seen, predicted)
                seen, predicted, length = seen[-self.context :], 0, self.stride
        yield from self._window(seen, predicted)

    def tokens(self) -> Iterator[int]:
        """The tokens of the text, with those before them that the model expects at the beginning."""
        yield from self.tokenizer.text_start
        for block in read_blocks(self.paths[0]):
            yield from self.tokenizer.encode_text(block)

    def words(self) -> int:
        """The words of the text: what spaces divide."""
        return sum(len(block.split()) for block in read_blocks(self.paths[0]))

    def _window(self, seen: Sequence[int], predicted: int) -> Iterator[Window]:
        before, tokens = list(seen[: len(seen) - predicted]), list(seen[len(seen) - predicted :])
        if not before:  # nothing is before the first token, so it cannot be predicted
            before, tokens = tokens[:1], tokens[1:]
        if tokens:
            yield Window(before, tokens)


def open_text(path: str | Path, options: Mapping[str, Any] | None = None, *others: object) -> Corpus:
    """A text file as a corpus of windows.

    Args:
        path: The file, gzipped or not.
        options: Its `stride` and `context`.
        *others: What else was given as a corpus: nothing, or an `InvalidSetting` is raised.
    """
    if any(other is not None for other in others):
        raise InvalidSetting("Give plain text or sentence pairs, not both.")
    return Corpus("windows", WindowReader([Path(path)], None, options))


def read_blocks(path: Path) -> Iterator[str]:
    """The text of a file, gzipped or not, in blocks that end with a line."""
    try:
        with open_bytes(path) as file:
            while block := file.read(BLOCK_BYTES):
                yield (block + file.readline()).decode()
    except UnicodeDecodeError as error:
        raise DamagedFile(f"{path} is no UTF-8 text: {error}.") from error
    except (EOFError, OSError) as error:
        raise KnnSeqError(f"{path} cannot be read to its end: {error}.") from error
