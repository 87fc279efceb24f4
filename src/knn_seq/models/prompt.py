"""What a decoder-only model reads before it writes a translation."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any

from knn_seq.errors import InvalidSetting
from knn_seq.models.answer import clean_answer
from knn_seq.models.base import PairTokenizer, Shots, UnknownToken
from knn_seq.models.languages import language_name
from knn_seq.settings import CHAT, ModelSettings

SOURCE = "{source}"
DEFAULT_PROMPT = "{source_lang}: {source}\n{target_lang}:\n"
SYSTEM_MESSAGE = (
    "You are a professional translator. Translate from {source_lang} to {target_lang}. "
    "Answer with the translation only."
)
BETWEEN_SHOTS = "\n\n"
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
        has_template = bool(getattr(tokenizer, "chat_template", None))
        if settings.prompt == CHAT and not has_template:
            raise InvalidSetting(
                f"The model's tokenizer has no chat template: write a prompt with {SOURCE} instead of '{CHAT}'."
            )
        self.chat = settings.prompt == CHAT or (settings.prompt is None and has_template)
        self.continues_text = settings.prompt == SOURCE  # the source is all that it reads
        if tokenizer.eos_token_id is None:
            raise InvalidSetting(
                "The model's tokenizer has no end-of-sentence token, so its translations would never end."
            )
        prompt = SOURCE if self.chat else settings.prompt or DEFAULT_PROMPT
        require_source(prompt)
        self.message = self._with_languages(prompt, settings, "Source", "Target")
        self.instruction = self._with_languages(SYSTEM_MESSAGE, settings, "the source language", "the target language")
        self.system_role = self.chat and self._takes_system_role()
        # Of the target alone: what is unknown in a source may be the prompt's.
        self.unknown = UnknownToken(target=unknown_token(tokenizer, tokenizer.eos_token_id))
        self.prompt: str = self._rendered() if self.chat else self._written(SOURCE)
        # Behind a source that ends the prompt stands any word: what precedes a space changes nothing behind it.
        self._end = self.prompt.rpartition(SOURCE)[2] or "a"
        self._end_tokens = self._encode([self._end])[0]
        self._separator, behind = self._around_answer()
        self.end: int = self._end_of_answer(behind)

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        """The prompt for each text."""
        return self._prompts(texts, [()] * len(texts))

    def encode_with_shots(self, texts: Sequence[str], shots: Sequence[Shots], longest: int | None) -> list[list[int]]:
        """See `PairTokenizer.encode_with_shots`: in a chat, examples are earlier messages and their answers."""
        prompts = []
        for text, examples in zip(texts, shots, strict=True):
            left = list(examples)
            [tokens] = self._prompts([text], [left])
            while left and longest is not None and len(tokens) > longest:
                del left[0]  # the least similar one
                [tokens] = self._prompts([text], [left])
            prompts.append(tokens)
        return prompts

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
            targets.append([*target, self.end])
        return targets

    def decode(self, tokens: Sequence[int]) -> str:
        """The translation in what the model wrote, or all of it if the model continues text."""
        text = self.plain_text(tokens)
        return text.strip() if self.continues_text else clean_answer(text)

    def plain_text(self, tokens: Sequence[int]) -> str:
        """All that the model wrote, without special tokens."""
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    @property
    def text_start(self) -> list[int]:
        """The tokens that the tokenizer puts before a text, such as a beginning-of-sentence token."""
        [text], with_special = self._encode(["a"]), self.tokenizer("a")["input_ids"]
        places = [place for place in range(len(with_special)) if with_special[place : place + len(text)] == text]
        return list(with_special[: places[0]]) if places else []

    def encode_text(self, text: str) -> list[int]:
        """The tokens of a text and of nothing else."""
        return self._encode([text])[0] if text else []

    def token(self, token: int) -> str:
        """The vocabulary's own spelling."""
        return str(self.tokenizer.convert_ids_to_tokens(token))

    def _prompts(self, texts: Sequence[str], shots: Sequence[Shots]) -> list[list[int]]:
        pairs = list(zip(texts, shots, strict=True))
        if not pairs:
            return []
        if self.chat:
            messages = [self._messages(text, examples) for text, examples in pairs]
            return [list(tokens) for tokens in self._template(messages, return_dict=True)["input_ids"]]
        written = ["".join(map(self._example, examples)) + self._written(text) for text, examples in pairs]
        encoded: list[list[int]] = self.tokenizer(written)["input_ids"]
        return encoded

    def _example(self, pair: tuple[str, str]) -> str:
        return self._written(pair[0]) + self._separator + pair[1] + BETWEEN_SHOTS

    def _written(self, source: str) -> str:
        # A space at the end would be a token of its own, and the model would have to write a word without its space.
        return self.message.replace(SOURCE, source).rstrip(" ")

    def _messages(self, source: str, shots: Shots = ()) -> list[dict[str, str]]:
        messages = [{"role": "system", "content": self.instruction}] if self.system_role else []
        for shown, translation in shots:
            messages += [{"role": "user", "content": shown}, {"role": "assistant", "content": translation}]
        messages.append({"role": "user", "content": source})
        if not self.system_role:
            messages[0] = {**messages[0], "content": f"{self.instruction}\n\n{messages[0]['content']}"}
        return messages

    def _template(self, messages: Any, **options: Any) -> Any:
        # A template that knows of thoughts leaves them out; others don't know the word.
        options = {"add_generation_prompt": True, **options}
        return self.tokenizer.apply_chat_template(messages, enable_thinking=False, **options)

    def _rendered(self, *answer: dict[str, str]) -> str:
        messages = [*self._messages(SOURCE), *answer]
        return str(self._template(messages, add_generation_prompt=not answer, tokenize=False))

    def _takes_system_role(self) -> bool:
        from jinja2 import TemplateError

        self.system_role = True
        try:
            return self.instruction in self._rendered()
        except TemplateError:  # as the templates of some models say
            return False

    def _encode(self, texts: list[str]) -> list[list[int]]:
        encoded: list[list[int]] = self.tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []
        return encoded

    def _around_answer(self) -> tuple[str, str]:
        """What stands between prompt and target, and in a chat behind the target.

        Before it is a space, unless the prompt ends as nobody puts one behind.
        """
        behind = ""
        if self.chat:
            answered = self._rendered({"role": "assistant", "content": ANSWER})
            between, found, behind = answered.removeprefix(self.prompt).partition(ANSWER)
            if found and answered.startswith(self.prompt) and not between.strip():
                return between, behind
        last = self._end[-1]
        joined = (
            last.isspace()
            or last in QUOTES
            or unicodedata.category(last) in OPENING
            or unicodedata.east_asian_width(last) in ("W", "F")
            or (self._end_tokens and self._end_tokens[-1] in self.tokenizer.all_special_ids)
        )
        return "" if joined else " ", behind

    def _end_of_answer(self, behind: str) -> int:
        """The token that a chat template puts behind an answer, or else the end-of-sentence token."""
        tokens = self._encode([behind.lstrip()])[0] if behind.strip() else []
        special = tokens[:1] and self.tokenizer.decode(tokens[:1], skip_special_tokens=True) == ""
        return int(tokens[0] if special else self.tokenizer.eos_token_id)

    def _with_languages(self, text: str, settings: ModelSettings, source: str, target: str) -> str:
        names = {"{source_lang}": (settings.source_lang, source), "{target_lang}": (settings.target_lang, target)}
        for place, (language, unknown) in names.items():
            text = text.replace(place, language_name(language) if language else unknown)
        return text


def require_source(prompt: str) -> None:
    """Raise an `InvalidSetting` if a prompt has no place for the source."""
    if SOURCE not in prompt:
        raise InvalidSetting(f"The prompt '{prompt}' has no place for the source: write {SOURCE} into it.")


def unknown_token(tokenizer: Any, end: int) -> int | None:
    """The unknown token; tokenizers of bytes need none, and some name the end of a sentence in its place."""
    token = getattr(tokenizer, "unk_token_id", None)
    return None if token is None or token == end else int(token)
