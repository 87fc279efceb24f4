"""What a decoder-only model reads before it writes a translation."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any

from knn_seq.errors import InvalidSetting
from knn_seq.models.base import PairTokenizer, UnknownToken
from knn_seq.settings import ModelSettings

SOURCE = "{source}"
DEFAULT_PROMPT = "{source_lang}: {source}\n{target_lang}:\n"
CHAT_PROMPT = "Translate from {source_lang} to {target_lang}. Answer with the translation only.\n\n{source}"
OPENING = ("Ps", "Pi")  # Unicode's categories of opening brackets and quotation marks
ANSWER = "answer"
QUOTES = "\"'`"


class PromptTokenizer(PairTokenizer):
    """The tokenizer of a decoder-only model: the source is written into a prompt, and the target follows it.

    The tokens of a target are those that it has behind the prompt.  A word has one token at the beginning of a text and
    another behind a space, and the second is what a model writes behind "English:".

    Args:
        tokenizer: Of Transformers.
        settings: The prompt and the languages in it.
    """

    def __init__(self, tokenizer: Any, settings: ModelSettings) -> None:
        self.tokenizer = tokenizer
        self.chat = settings.prompt is None and bool(getattr(tokenizer, "chat_template", None))
        prompt = settings.prompt or (CHAT_PROMPT if self.chat else DEFAULT_PROMPT)
        require_source(prompt)
        self.message = prompt.replace("{source_lang}", settings.source_lang or "Source").replace(
            "{target_lang}", settings.target_lang or "Target"
        )
        if tokenizer.eos_token_id is None:
            raise InvalidSetting(
                "The model's tokenizer has no end-of-sentence token, so its translations would never end."
            )
        # Of the target alone: what is unknown in a source may be the prompt's.
        self.unknown = UnknownToken(target=unknown_token(tokenizer, tokenizer.eos_token_id))
        self.prompt: str = self._rendered() if self.chat else self._written(SOURCE)
        # Behind a source that ends the prompt stands any word: what precedes a space changes nothing behind it.
        self._end = self.prompt.rpartition(SOURCE)[2] or "a"
        self._end_tokens = self._encode([self._end])[0]
        self._separator = self._between()

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        """The prompt for each text."""
        if not self.chat:
            encoded: list[list[int]] = self.tokenizer([self._written(text) for text in texts])["input_ids"]
            return encoded
        chat: list[list[int]] = self.tokenizer.apply_chat_template(
            [self._messages(text) for text in texts], add_generation_prompt=True, return_dict=True
        )["input_ids"]
        return chat

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        """The text as it continues the prompt, and the end."""
        before = len(self._end_tokens)
        targets = []
        for text, tokens in zip(
            texts, self._encode([self._end + self._separator + text for text in texts]), strict=True
        ):
            if tokens[:before] == self._end_tokens:
                target = tokens[before:]
            else:  # the text begins with what the tokenizer joins with the end of the prompt
                target = self._encode([self._separator + text])[0]
            targets.append([*target, self.tokenizer.eos_token_id])
        return targets

    def decode(self, tokens: Sequence[int]) -> str:
        """Text without special tokens."""
        text: str = self.tokenizer.decode(list(tokens), skip_special_tokens=True)
        return text.strip()

    def token(self, token: int) -> str:
        """The vocabulary's own spelling."""
        return str(self.tokenizer.convert_ids_to_tokens(token))

    def _written(self, source: str) -> str:
        # A space at the end would be a token of its own, and the model would have to write a word without its space.
        return self.message.replace(SOURCE, source).rstrip(" ")

    def _messages(self, source: str) -> list[dict[str, str]]:
        return [{"role": "user", "content": self.message.replace(SOURCE, source)}]

    def _rendered(self, *answer: dict[str, str]) -> str:
        messages = [*self._messages(SOURCE), *answer]
        return str(self.tokenizer.apply_chat_template(messages, add_generation_prompt=not answer, tokenize=False))

    def _encode(self, texts: list[str]) -> list[list[int]]:
        encoded: list[list[int]] = self.tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []
        return encoded

    def _between(self) -> str:
        """What stands between prompt and target: a space, unless the prompt ends as nobody puts one behind."""
        if self.chat:
            answered = self._rendered({"role": "assistant", "content": ANSWER})
            between, found, _ = answered.removeprefix(self.prompt).partition(ANSWER)
            if found and answered.startswith(self.prompt) and not between.strip():
                return between
        last = self._end[-1]
        joined = (
            last.isspace()
            or last in QUOTES
            or unicodedata.category(last) in OPENING
            or unicodedata.east_asian_width(last) in ("W", "F")
            or (self._end_tokens and self._end_tokens[-1] in self.tokenizer.all_special_ids)
        )
        return "" if joined else " "


def require_source(prompt: str) -> None:
    """Raise an `InvalidSetting` if a prompt has no place for the source."""
    if SOURCE not in prompt:
        raise InvalidSetting(f"The prompt '{prompt}' has no place for the source: write {SOURCE} into it.")


def unknown_token(tokenizer: Any, end: int) -> int | None:
    """The unknown token; tokenizers of bytes need none, and some name the end of a sentence in its place."""
    token = getattr(tokenizer, "unk_token_id", None)
    return None if token is None or token == end else int(token)
