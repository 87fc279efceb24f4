from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from knn_seq.corpus.base import CORPUS_FORMATS, CorpusReader
from knn_seq.corpus.pair import EMPTY_SIDE, BadPair, SentencePair
from knn_seq.errors import DamagedFile, InvalidSetting, ModelMismatch, NotFound
from knn_seq.fairseq.dictionary import EOS, Dictionary, join_pieces
from knn_seq.fairseq.token_file import TokenFile
from knn_seq.registry import Option


class _Side(NamedTuple):
    """One language of a split."""

    language: str
    dictionary: Dictionary
    word_starts: bool  # its symbols are SentencePiece's
    files: list[TokenFile]  # those of "train", "train1", "train2" ...

    def text(self, tokens: Sequence[int]) -> str:
        return join_pieces(self.dictionary.decode(tokens), self.word_starts)


@CORPUS_FORMATS.register("data_bin")
class DataBinReader(CorpusReader):
    """A data-bin folder, what `fairseq-preprocess --destdir` was given; the pairs come with their tokens.

    Its languages are those of the model that it is bound to; without one they are given as options, or told by the
    names of its files.
    """

    reads_folder = True
    options: ClassVar[Mapping[str, Option]] = {
        "split": Option("train", "of the folder; train1, train2 ... are read behind train if they are there", str),
        "source_lang": Option(None, "the language to translate from", str),
        "target_lang": Option(None, "the language to translate to", str),
    }
    source_prefix: tuple[int, ...] = ()  # before every source: a multilingual model's language token
    _sides: tuple[_Side, _Side] | None = None

    @classmethod
    def recognises(cls, path: Path) -> bool:
        """A folder with dictionaries and binarised text."""
        return path.is_dir() and any(path.glob("dict.*.txt")) and any(path.glob("*.idx"))

    def pairs(self, start: int = 0) -> Iterator[SentencePair | BadPair]:
        """Every sentence of the split but for the first `start`."""
        source, target = self._opened()
        ends = np.cumsum([len(file.starts) for file in source.files]).tolist()
        for number in range(start, ends[-1]):
            part = bisect_right(ends, number)
            row = number - (ends[part - 1] if part else 0)
            yield self._pair(number + 1, source.files[part].sentence(row), target.files[part].sentence(row))

    def bind(self, model: Any) -> None:
        """Take over the model's languages, and check that the dictionaries are the model's."""
        from knn_seq.fairseq.checkpoint.tokenizer import FairseqTokenizer

        name, tokenizer = model.settings.name, model.tokenizer
        if not isinstance(tokenizer, FairseqTokenizer):
            raise ModelMismatch(f"A data-bin folder is for fairseq's models, which {name} is not.")
        for option, language in (
            ("source_lang", tokenizer.source.language),
            ("target_lang", tokenizer.target.language),
        ):
            if self.option_values[option] not in (None, language):
                raise InvalidSetting(
                    f"The corpus option {option}={self.option_values[option]} is not {language}, "
                    f"the language of {name}: leave it out."
                )
        self.source_prefix = tokenizer.source_prefix
        self._sides = self._open(tokenizer.source.language, tokenizer.target.language)
        for own, there in zip((tokenizer.source, tokenizer.target), self._sides, strict=True):
            symbols = own.dictionary.symbols
            if tokenizer.languages:  # the model's have the tokens of its languages behind
                symbols = symbols[: len(there.dictionary)]
            if symbols != there.dictionary.symbols:
                raise ModelMismatch(
                    f"{self._dictionary_path(own.language)} is not the dictionary of {name}: "
                    "binarise the text with the model's own dictionaries (fairseq-preprocess --srcdict --tgtdict)."
                )

    def model_options(self) -> dict[str, Any]:
        """The folder has the model's dictionaries; languages that were given are the model's, too."""
        given = {name: self.option_values[name] for name in ("source_lang", "target_lang")}
        return {"data": str(self.folder), **{name: language for name, language in given.items() if language}}

    def inferred(self) -> dict[str, Any]:
        """The languages, and what stands before every source."""
        source, target = self._opened()
        languages = {"source_lang": source.language, "target_lang": target.language}
        return {**languages, "source_prefix": list(self.source_prefix)}

    def why_unknown(self) -> str | None:
        """What was binarised."""
        return (
            "fairseq-preprocess read other text than the model's; binarise text again that is tokenized and split into "
            "the model's subwords"
        )

    def content_files(self) -> Sequence[Path]:
        """The tokens of each part of the split."""
        source, target = self._opened()
        return [file.path for part in zip(source.files, target.files, strict=True) for file in part]

    def describe(self) -> str:
        """Split, folder and languages."""
        source, target = self._opened()
        return f"{self.option_values['split']} of {self.folder.resolve().name} ({source.language}-{target.language})"

    @property
    def folder(self) -> Path:
        """The data-bin folder."""
        return self.paths[0]

    def _opened(self) -> tuple[_Side, _Side]:
        if self._sides is None:
            first, second = self.option_values["source_lang"], self.option_values["target_lang"]
            if first is None or second is None:
                first, second = (
                    given or told for given, told in zip((first, second), self._language_pair(), strict=True)
                )
            self._sides = self._open(first, second)
        return self._sides

    def _open(self, source_lang: str, target_lang: str) -> tuple[_Side, _Side]:
        parts = [
            [TokenFile.open(Path(f"{prefix}.{language}")) for language in (source_lang, target_lang)]
            for prefix in self._prefixes(source_lang, target_lang)
        ]
        for source, target in parts:
            if len(source.starts) != len(target.starts):
                raise DamagedFile(f"{source.path} and {target.path.name} do not have the same number of sentences.")
        sides = []
        for number, language in enumerate((source_lang, target_lang)):
            dictionary = Dictionary.read(self._dictionary_path(language))
            sides.append(_Side(language, dictionary, dictionary.has_word_starts(), [part[number] for part in parts]))
        return sides[0], sides[1]

    def _pair(self, number: int, source: tuple[int, ...], target: tuple[int, ...]) -> SentencePair | BadPair:
        place, sides = f"sentence {number}", self._opened()
        for tokens, side in zip((source, target), sides, strict=True):
            if tokens and not (min(tokens) >= 0 and max(tokens) < len(side.dictionary)):
                raise DamagedFile(
                    f"Sentence {number} of {self.describe()} has tokens that its dictionary does not: "
                    "the files do not belong together."
                )
        source, target = ((*tokens, EOS) if tokens[-1:] != (EOS,) else tokens for tokens in (source, target))
        if len(source) == 1 or len(target) == 1:
            return BadPair(place, EMPTY_SIDE)
        texts = sides[0].text(source), sides[1].text(target)
        return SentencePair(*texts, place, (*self.source_prefix, *source), target)

    def _dictionary_path(self, language: str) -> Path:
        return self.folder / f"dict.{language}.txt"

    def _language_pair(self) -> tuple[str, str]:
        names = (re.fullmatch(r"[^.]+\.([^.-]+)-([^.-]+)\.[^.]+\.idx", path.name) for path in self.folder.iterdir())
        pairs = sorted({(match[1], match[2]) for match in names if match})
        if len(pairs) != 1:
            found = " and ".join("-".join(pair) for pair in pairs) or "none"
            raise InvalidSetting(
                f"The languages of {self.folder} cannot be told from its files ({found} found): give the corpus "
                "options source_lang and target_lang (--corpus-option source_lang=de,target_lang=en)."
            )
        return pairs[0]

    def _prefixes(self, source_lang: str, target_lang: str) -> list[Path]:
        """The beginnings of the file names of all parts of the split."""
        split = self.option_values["split"]
        prefixes: list[Path] = []
        while (prefix := self._prefix(f"{split}{len(prefixes) or ''}", source_lang, target_lang)) is not None:
            prefixes.append(prefix)
        if not prefixes:
            raise NotFound(
                f"There is no split '{split}' from {source_lang} to {target_lang} in {self.folder}: give another one "
                "(--corpus-option split=NAME), or run fairseq-preprocess with another --dataset-impl than raw."
            )
        return prefixes

    def _prefix(self, split: str, source_lang: str, target_lang: str) -> Path | None:
        """Of one part; fairseq uses the same files for both directions."""
        for pair in (f"{source_lang}-{target_lang}", f"{target_lang}-{source_lang}"):
            if (self.folder / f"{split}.{pair}.{source_lang}.idx").exists():
                return self.folder / f"{split}.{pair}"
        return None
