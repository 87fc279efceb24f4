"""The Translator: what a user of the Python API holds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, overload

from knn_seq.corpus import Corpus, CorpusLike, open_corpus
from knn_seq.datastore import Datastore
from knn_seq.decoding import KnnDecoder, Translation, attention_of
from knn_seq.decoding.chain import chained
from knn_seq.decoding.term_decoder import BoundOutput, TermDecoder
from knn_seq.errors import InvalidSetting, KnnSeqError
from knn_seq.glossary import Glossary, GlossaryLike, TermFinder, as_glossary, stored_glossary
from knn_seq.likelihood import Reference
from knn_seq.models import Hypothesis, Model, Source, StepHook, as_model
from knn_seq.models.ensemble import Ensemble
from knn_seq.protect import Attention
from knn_seq.runtime.stopwatch import Stopwatch
from knn_seq.sentences.shots import ShotSearch, longest_prompt
from knn_seq.sentences.shots import read as as_sources
from knn_seq.settings import BuildSettings, DecodingSettings, ModelSettings, SearchSettings, override, reject_unknown
from knn_seq.storage.exact_matches import ExactMatches
from knn_seq.storage.translation_memory import TranslationMemory
from knn_seq.train import Training, examples_for, store_combiner, train
from knn_seq.train.general import general_sentences
from knn_seq.train.memory import measure_memory
from knn_seq.train.run import SENTENCES, require_trainable

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from knn_seq.settings import TranslateOptions, TranslatorOptions


class Translator:
    """Translates with a model that a datastore, or a translation memory, adapts to its domain.

    It is a context manager: behind it, indexes and files are closed.

    Args:
        store: The datastore or its folder.
        model: The model: a hub name, a path, BACKEND:NAME, a loaded Transformers network (with its `tokenizer`), or a
            `Model`.  A datastore needs it only if it is no longer where it was when the datastore was built.
        tokenizer: Of a loaded Transformers network.
        ensemble: Further models with the same vocabulary that decide together with the first.
        translation_memory: Instead of a datastore, sentence pairs that are searched as they are: pairs of texts, a
            file, an opened corpus, or an opened memory.  Without a temperature, a combiner is trained on a few of
            them, which takes seconds.
        glossary: Terms that are binding: a `Glossary`, a file, a mapping from sources to targets, or `Term`s; None: the
            datastore's own, if it has one.
        decoding: How translations are searched for: `DecodingSettings`, or a `GenerationConfig` of Transformers.
        **options: Other defaults than the datastore's own: fields of `SearchSettings`, `DecodingSettings` and, for the
            model, `ModelSettings`.
    """

    def __init__(
        self,
        store: Datastore | str | Path | None = None,
        model: Any = None,
        *,
        tokenizer: Any = None,
        ensemble: Sequence[str | Model] = (),
        translation_memory: TranslationMemory | CorpusLike | None = None,
        glossary: GlossaryLike | None = None,
        decoding: DecodingSettings | Any = None,
        **options: Unpack[TranslatorOptions],
    ) -> None:
        given: Mapping[str, Any] = options
        reject_unknown(given, SearchSettings, DecodingSettings, ModelSettings)
        opened = _opened(store, translation_memory, model)
        if isinstance(opened, Datastore) and (own := [name for name in _KNOWN_BY_STORE if given.get(name)]):
            raise InvalidSetting(f"{own[0]} is for a translation memory; a datastore has its own: leave it out.")
        wanted = opened.model_settings if isinstance(opened, Datastore) else ModelSettings("")
        wanted = override(wanted, given)
        lead = as_model(model or wanted.name, wanted, tokenizer)
        if isinstance(opened, Datastore):
            opened.require_fitting(lead)
            opened = opened.snapshot()
        elif isinstance(opened, Corpus):
            opened.prefer_languages(lead)
            opened = TranslationMemory.open(opened)
        self.model: Model = Ensemble.of([lead, *(as_model(other, wanted) for other in ensemble)]) if ensemble else lead
        self.decoder = KnnDecoder(opened, self.model, {name: given[name] for name in given if name in _SEARCH})
        self.decoder.settings()  # what cannot be is refused at once
        self.glossary = self._opened_glossary(glossary)
        self.term_decoder = TermDecoder(self.model)
        self.decoding = override(decoding, given) if isinstance(decoding, DecodingSettings) else decoding
        self.decoding = self.decoding or override(DecodingSettings(), given)
        self._shots: dict[str, ShotSearch] = {}  # by what finds them
        self.stopwatch: Stopwatch | None = None  # told where the time of decoding goes
        self._lock = threading.Lock()  # hooks belong to the model, not to a thread
        self._owns_store, self._closed = not isinstance(store, Datastore), False
        self._exact: ExactMatches | None = None  # made when a file is first translated
        if isinstance(self.store, TranslationMemory) and given.get("temperature") is None:
            measure_memory(self.decoder, given.get("combiner"))

    @property
    def store(self) -> Datastore | TranslationMemory:
        """What is searched, in the generation that the last batch has seen."""
        return self.decoder.store  # type: ignore[return-value]

    @overload
    def translate(  # type: ignore[overload-overlap]  # a string is a sequence of strings, too
        self,
        sources: str,
        on_progress: Callable[[int], None] | None = None,
        decoding: DecodingSettings | Any = None,
        *,
        glossary: GlossaryLike | None = None,
        **options: Unpack[TranslateOptions],
    ) -> Translation: ...

    @overload
    def translate(
        self,
        sources: Sequence[str],
        on_progress: Callable[[int], None] | None = None,
        decoding: DecodingSettings | Any = None,
        *,
        glossary: GlossaryLike | None = None,
        **options: Unpack[TranslateOptions],
    ) -> list[Translation]: ...

    def translate(
        self,
        sources: str | Sequence[str],
        on_progress: Callable[[int], None] | None = None,
        decoding: DecodingSettings | Any = None,
        *,
        glossary: GlossaryLike | None = None,
        **options: Unpack[TranslateOptions],
    ) -> Translation | list[Translation]:
        """Translate a sentence, or many of them.

        Args:
            sources: The sentence or the sentences; an empty one gives an empty translation.
            on_progress: Called with the number of sentences that are done since the last call.
            decoding: Instead of the translator's: `DecodingSettings`, or a `GenerationConfig` of Transformers.
            glossary: Instead of the translator's; an empty one ({}) binds nothing.
            **options: Fields of `SearchSettings` and `DecodingSettings`; a weight of 0 is the model alone.
        """
        if isinstance(sources, str):
            return self.translate([sources], on_progress, decoding, glossary=glossary, **options)[0]
        search, decoding = self.settings(options, decoding)
        terms = self.glossary if glossary is None else self._opened_glossary(glossary)
        finder = terms.finder(self.model.source_language, self.model.target_language) if terms else None
        read, cut = self.read(sources, search)
        results = [Translation("", source, []) for source in sources]
        nonempty = [i for i in sorted(range(len(sources)), key=lambda i: -len(read[i].tokens)) if sources[i].strip()]
        size = decoding.batch_size if isinstance(decoding, DecodingSettings) else DecodingSettings.batch_size
        for place, output in self._generate([read[i] for i in nonempty], search, decoding, size, finder):
            i = nonempty[place]
            best = Translation.of(output.outputs, sources[i], self.model.tokenizer, cut[i])
            if output.check is not None:
                for each in (best, *best.alternatives):
                    each.terms = output.check.uses(each)
            results[i] = best
            if on_progress is not None:
                on_progress(1)
        return results

    def settings(
        self, options: Mapping[str, Any], decoding: DecodingSettings | Any = None
    ) -> tuple[SearchSettings, DecodingSettings | Any]:
        """The translator's settings with these options in their place.

        Options that name another retriever, combiner or index bring the datastore's own settings for it.
        """
        reject_unknown(options, SearchSettings, DecodingSettings)
        chosen = decoding or self.decoding
        if isinstance(chosen, DecodingSettings):
            chosen = override(chosen, options)
        return self.decoder.settings(options), chosen

    def read(self, sources: Sequence[str], search: SearchSettings | None = None) -> tuple[list[Source], list[bool]]:
        """The sentences with their tokens, and which of them were cut to the length that the model can read.

        Args:
            sources: The sentences.
            search: Which says how many similar pairs stand in a prompt; None: the translator's own settings.
        """
        encoded, limit = self._prompts(list(sources), search or self.decoder.settings()), self.model.max_length
        cut = [limit is not None and len(tokens) > limit for tokens in encoded]
        for i, long in enumerate(cut):
            if long:
                encoded[i] = [*encoded[i][: limit - 1], encoded[i][-1]]  # type: ignore[operator]
        return [Source(text, tokens) for text, tokens in zip(sources, encoded, strict=True)], cut

    def attention(self, translations: Sequence[Translation]) -> list[Attention | None]:
        """Where the model looks when it writes each translation, neighbours or not; None: it cannot tell."""
        with self._lock:
            return attention_of(self.model, self.read([each.source for each in translations])[0], translations)

    def references(
        self, sources: Sequence[str], targets: Sequence[str], search: SearchSettings | None = None
    ) -> list[Reference]:
        """Sentence pairs of a dev set, those that the model can read completely; see `read`."""
        if not sources:
            raise KnnSeqError("There is no sentence pair in the dev set.")
        read, cut = self.read(sources, search)
        fitting = [
            Reference(source, target)
            for source, target, too_long in zip(
                read, self.model.tokenizer.encode_targets(list(targets)), cut, strict=True
            )
            if not too_long and self.model.fits(len(source.tokens), len(target))
        ]
        if not fitting:
            raise KnnSeqError("There is no sentence pair in the dev set that the model can read.")
        return fitting

    def train(
        self,
        combiners: Sequence[str] = (BuildSettings.combiner,),
        *,
        dev: Sequence[tuple[str, str]] | Sequence[Reference] | None = None,
        general: str | Path | Sequence[str] | None = None,
        sentences: int = SENTENCES,
        k: int | None = None,
        seed: int = 0,
        as_default: bool | None = None,
    ) -> list[Training]:
        """Train combiners for the translator's retriever and index from one search; a datastore keeps them.

        Args:
            combiners: Their names.
            dev: Sentence pairs, or references, to learn from; None: the searched ones, each predicted from all others.
            general: Sentences of other domains, or a file of them, which neighbours must not change; None: the
                package's, if it has any in the model's language.
            sentences: How many searched sentences are predicted at most.
            k: The most neighbours of a token; None: 32 or, for a text, as many as `fixed` is best with.
            seed: Of all that is random.
            as_default: Let translations use the first of them by default; None: if the translator's retriever and index
                are the datastore's default ones, and held-out sentences are more likely than with fixed settings.
        """
        for name in combiners:
            require_trainable(name)
        self.decoder.refresh()
        decoder = self.decoder.frozen()  # whatever is added meanwhile
        settings = decoder.settings()
        listed = None if general is None or isinstance(general, str | Path) else list(general)
        others = general_sentences(self.model, general) if listed is None else listed  # type: ignore[arg-type]
        pairs = None if dev is None else self._as_references(dev)
        examples = examples_for(decoder, settings, dev=pairs, general=others, sentences=sentences, k=k, seed=seed)
        trained = [train(examples, settings, name, k, seed) for name in combiners]
        for number, each in enumerate(trained):
            if isinstance(self.store, Datastore):
                usual = settings.retriever == SearchSettings.retriever and settings.index is None
                wanted = usual and each.better_than_fixed if as_default is None else as_default
                store_combiner(self.store, each, wanted and not number)
            self.decoder.use_combiner(each.settings, each.combiner, each.skip and each.skip.network)
        return trained

    def add(self, pairs: CorpusLike, update: bool = False, **options: Any) -> list[str]:
        """Add sentence pairs to the datastore with the translator's model, between two batches.

        Args:
            pairs: Pairs of texts, `SentencePair`s, a file, or an opened corpus.
            update: Let each pair take the place of the one with its id or, if there is none, of those with its source.
            **options: Those of `Datastore.add`.

        Returns:
            The ids of the pairs.
        """
        if not isinstance(self.store, Datastore):
            raise KnnSeqError("A translation memory is searched as it is: add sentence pairs to a datastore.")
        with self._lock:
            return Datastore(self.store.path).add(pairs, self.model, **{**options, "update": update})

    @property
    def exact_matches(self) -> ExactMatches:
        """The targets that the searched sentence pairs have for a complete source."""
        self.decoder.refresh()
        self._exact = ExactMatches.current(self._exact, self.store.texts, getattr(self.store, "deleted", ()))
        return self._exact

    def close(self) -> None:
        """Let go of indexes and files; a datastore or a model that was given stays as it is."""
        with self._lock:
            self._closed = True
            self.decoder.close()
            if self._owns_store and isinstance(self.store, Datastore):
                self.store.close()

    def __enter__(self) -> Translator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _prompts(self, sources: list[str], search: SearchSettings) -> list[list[int]]:
        """What the model reads for each sentence, with examples before it if these are wanted."""
        built = self.store.manifest.build if isinstance(self.store, Datastore) else BuildSettings()
        shots = built.shots if search.shots is None else search.shots
        if not shots or not sources:
            return self.model.tokenizer.encode_sources(sources)
        by = search.shots_by or built.shots_by
        if by not in self._shots:
            self._shots[by] = ShotSearch.open(self.store, self.model, by)
        found = self._shots[by].examples(as_sources(sources, self.model), shots)
        return self.model.tokenizer.encode_with_shots(sources, found, longest_prompt(self.model))

    def _generate(
        self,
        sources: list[Source],
        search: SearchSettings,
        decoding: DecodingSettings | Any,
        batch_size: int,
        finder: TermFinder | None = None,
    ) -> Iterator[tuple[int, BoundOutput]]:
        """The outputs of each source, by its number, as they are found."""
        with self._lock:
            if self._closed:
                raise KnnSeqError("This translator is closed: open another one.")
            self.decoder.refresh()
            decode = partial(self._decode, sources, search, decoding, batch_size)
            if finder is not None:
                yield from self.term_decoder.generate(sources, finder, decode)
                return
            for number, outputs in decode(range(len(sources)), None):
                yield number, BoundOutput(outputs, None)

    def _decode(
        self,
        sources: Sequence[Source],
        search: SearchSettings,
        decoding: DecodingSettings | Any,
        batch_size: int,
        numbers: Sequence[int],
        terms: StepHook | None,
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """The outputs of some of the sources as they are found, with a hook behind that of the neighbours."""
        some = [sources[number] for number in numbers]
        hook = chained(self.decoder.batch(some, search, self.stopwatch, at_once=False), terms)
        return self.model.generate_stream([source.tokens for source in some], decoding, hook, batch_size)

    def _opened_glossary(self, glossary: GlossaryLike | None) -> Glossary | None:
        """The glossary that was given, or else the datastore's own."""
        if glossary is not None:
            return as_glossary(glossary, self.model.source_language, self.model.target_language)
        return stored_glossary(self.store) if isinstance(self.store, Datastore) else None

    def decode(
        self,
        sources: list[Source],
        search: SearchSettings,
        decoding: DecodingSettings | Any,
        before: StepHook | None = None,
    ) -> list[list[Hypothesis]]:
        """The outputs of a batch that is read already.

        Args:
            sources: The sentences, or prompts, with their tokens.
            search: How neighbours are found.
            decoding: How outputs are searched for.
            before: Sees, and may change, each step before neighbours do.
        """
        with self._lock:
            if self._closed:
                raise KnnSeqError("This translator is closed: open another one.")
            self.decoder.refresh()
            hook = chained(before, self.decoder.batch(sources, search, self.stopwatch))
            return self.model.generate([source.tokens for source in sources], decoding, hook)

    def _as_references(self, dev: Sequence[Any]) -> list[Reference]:
        given = dev and all(isinstance(each, Reference) for each in dev)
        return list(dev) if given else self.references([source for source, _ in dev], [target for _, target in dev])


_SEARCH = frozenset(SearchSettings.__dataclass_fields__)
_KNOWN_BY_STORE = ("source_lang", "target_lang", "prompt", "key")


def _opened(
    store: Datastore | str | Path | None, memory: TranslationMemory | CorpusLike | None, model: Any
) -> Datastore | TranslationMemory | Corpus:
    """What is searched, or the corpus that is to be read as a translation memory."""
    if store is not None and memory is not None:
        raise InvalidSetting("Give a datastore or a translation memory, not both.")
    if store is not None:
        return store if isinstance(store, Datastore) else Datastore(store)
    if memory is None:
        raise InvalidSetting("Give a datastore's folder or a translation memory (--translation-memory).")
    if model is None:
        raise InvalidSetting("A translation memory does not say which model it is for: give one (--model).")
    return memory if isinstance(memory, TranslationMemory) else open_corpus(memory)
