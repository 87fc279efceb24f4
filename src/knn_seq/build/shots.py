"""A corpus whose prompts hold similar pairs of it as examples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from knn_seq.corpus import BadPair, Corpus, CorpusReader, SentencePair
from knn_seq.errors import InvalidSetting
from knn_seq.models import Model
from knn_seq.sentences.shots import ShotSearch, longest_prompt, read
from knn_seq.settings import BuildSettings

PAIRS_AT_ONCE = 64


def with_shots(corpus: Corpus, model: Model, settings: BuildSettings) -> Corpus:
    """The corpus with examples in its prompts, if the settings want any."""
    return Corpus(corpus.format, ShotReader(corpus, model, settings)) if settings.shots else corpus


class ShotReader(CorpusReader):
    """The pairs of a corpus, tokenized with the most similar other pairs as examples: the shape that queries will have.

    All pairs are held in memory.

    Args:
        corpus: The corpus.
        model: Whose prompt it is.
        settings: How many examples, and what finds them.
    """

    def __init__(self, corpus: Corpus, model: Model, settings: BuildSettings) -> None:
        super().__init__(())
        self.corpus, self.model, self.settings = corpus, model, settings
        self.columns, self.option_values = corpus.reader.columns, corpus.reader.option_values
        model.tokenizer.encode_with_shots([], [], None)  # a model that takes none is refused at once

    def pairs(self, start: int = 0) -> Iterator[SentencePair | BadPair]:
        """Every pair with its tokens, but for the first `start`."""
        units = list(self.corpus.pairs())
        good = [unit for unit in units if isinstance(unit, SentencePair)]
        if not good:
            yield from units[start:]
            return
        search = ShotSearch.fit([(pair.source, pair.target) for pair in good], self.model, self.settings.shots_by)
        number = sum(isinstance(unit, SentencePair) for unit in units[:start])  # of the next good one
        left = iter(units[start:])
        while some := list(islice(left, PAIRS_AT_ONCE)):
            numbers = range(number, number + sum(isinstance(unit, SentencePair) for unit in some))
            encoded = iter(self._encoded([good[each] for each in numbers], search, numbers))
            yield from (next(encoded) if isinstance(unit, SentencePair) else unit for unit in some)
            number = numbers.stop

    def _encoded(self, pairs: list[SentencePair], search: ShotSearch, numbers: Sequence[int]) -> list[SentencePair]:
        if not pairs:
            return []
        texts, tokenizer = [pair.source for pair in pairs], self.model.tokenizer
        shots = search.examples(read(texts, self.model), self.settings.shots, own=numbers)
        prompts = tokenizer.encode_with_shots(texts, shots, longest_prompt(self.model))
        targets = tokenizer.encode_targets([pair.target for pair in pairs])
        return [
            pair._replace(source_tokens=tuple(prompt), target_tokens=tuple(target))
            for pair, prompt, target in zip(pairs, prompts, targets, strict=True)
        ]

    def bind(self, model: Any) -> None:
        """See `CorpusReader.bind`."""
        self.corpus.bind(model)
        if any(isinstance(unit, SentencePair) and unit.source_tokens for unit in islice(self.corpus.pairs(), 1)):
            raise InvalidSetting("Text that brings its own tokens takes no examples: leave --shots out.")

    def inferred(self) -> dict[str, Any]:
        """See `CorpusReader.inferred`."""
        return self.corpus.reader.inferred()

    def longest_side(self) -> int:
        """A prompt with examples may be longer than the sides of a corpus usually are."""
        return longest_prompt(self.model)

    def content_files(self) -> Sequence[Path]:
        """See `CorpusReader.content_files`."""
        return self.corpus.reader.content_files()

    def describe(self) -> str:
        """See `CorpusReader.describe`."""
        return self.corpus.describe()
