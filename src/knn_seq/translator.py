"""The Translator: what a user of the Python API holds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, overload

from knn_seq.combine import COMBINERS
from knn_seq.combine.trained import TrainedCombiner
from knn_seq.corpus import Corpus, CorpusLike, open_corpus
from knn_seq.datastore import Datastore
from knn_seq.decoding import KnnDecoder, Translation
from knn_seq.decoding.chain import StepHooks
from knn_seq.decoding.term_decoder import BoundOutput, TermDecoder
from knn_seq.errors import InvalidSetting, KnnSeqError
from knn_seq.glossary import Glossary, GlossaryLike, TermFinder, as_glossary, stored_glossary
from knn_seq.likelihood import Reference, calibrate
from knn_seq.models import Hypothesis, Model, Source, StepHook, as_model
from knn_seq.models.ensemble import Ensemble
from knn_seq.runtime.stopwatch import Stopwatch
from knn_seq.settings import BuildSettings, DecodingSettings, ModelSettings, SearchSettings, override, reject_unknown
from knn_seq.storage.exact_matches import ExactMatches
from knn_seq.storage.translation_memory import TranslationMemory
from knn_seq.train import Training, examples_for, store_combiner, train
from knn_seq.train.general import general_sentences
from knn_seq.train.run import LARGEST_K, SENTENCES, require_trainable

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from knn_seq.settings import TranslateOptions, TranslatorOptions

# How a translation memory is measured: in seconds, and for few keys, of which far neighbours are no use.
MEMORY_SENTENCES, MEMORY_GENERAL = 40, 40  # each computes the keys of the pairs that it finds
MEMORY_K = (2, 4, 8, 16)
MEMORY_FLOOR = 0.05


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
        self.stopwatch: Stopwatch | None = None  # told where the time of decoding goes
        self._lock = threading.Lock()  # hooks belong to the model, not to a thread
        self._owns_store, self._closed = not isinstance(store, Datastore), False
        self._exact: ExactMatches | None = None  # made when a file is first translated
        if isinstance(self.store, TranslationMemory) and given.get("temperature") is None:
            self._measure_memory(given.get("combiner"))

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
        read, cut = self.read(sources)
        results = [Translation("", source, []) for source in sources]
        nonempty = [i for i in sorted(range(len(sources)), key=lambda i: -len(read[i].tokens)) if sources[i].strip()]
        size = decoding.batch_size if isinstance(decoding, DecodingSettings) else DecodingSettings.batch_size
        for place, output in self._generate([read[i] for i in nonempty], search, decoding, size, finder):
            i = nonempty[place]
            best, *others = [
                Translation(self.model.tokenizer.decode(one.tokens), sources[i], one.tokens, one.score)
                for one in output.outputs
            ]
            best.alternatives, best.source_cut = others, cut[i]
            if output.check is not None:
                for each in (best, *others):
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

    def read(self, sources: Sequence[str]) -> tuple[list[Source], list[bool]]:
        """The sentences with their tokens, and which of them were cut to the length that the model can read."""
        encoded, limit = self.model.tokenizer.encode_sources(list(sources)), self.model.max_length
        cut = [limit is not None and len(tokens) > limit for tokens in encoded]
        for i, long in enumerate(cut):
            if long:
                encoded[i] = [*encoded[i][: limit - 1], encoded[i][-1]]  # type: ignore[operator]
        return [Source(text, tokens) for text, tokens in zip(sources, encoded, strict=True)], cut

    def references(self, sources: Sequence[str], targets: Sequence[str]) -> list[Reference]:
        """Sentence pairs of a dev set, those that the model can read completely."""
        if not sources:
            raise KnnSeqError("There is no sentence pair in the dev set.")
        read, cut = self.read(sources)
        longest = self.model.max_length
        fitting = [
            Reference(source, target)
            for source, target, too_long in zip(
                read, self.model.tokenizer.encode_targets(list(targets)), cut, strict=True
            )
            if not too_long and len(target) <= (longest or len(target))
        ]
        if not fitting:
            raise KnnSeqError("There is no sentence pair in the dev set that the model can read.")
        return fitting

    def train(
        self,
        combiners: Sequence[str] = (BuildSettings.combiner,),
        *,
        dev: Sequence[tuple[str, str]] | None = None,
        general: str | Path | Sequence[str] | None = None,
        sentences: int = SENTENCES,
        k: int = LARGEST_K,
        seed: int = 0,
        as_default: bool | None = None,
    ) -> list[Training]:
        """Train combiners for the translator's retriever and index from one search; a datastore keeps them.

        Args:
            combiners: Their names.
            dev: Sentence pairs to learn from; None: the searched ones, each predicted from all others.
            general: Sentences of other domains, or a file of them, which neighbours must not change; None: the
                package's, if it has any in the model's language.
            sentences: How many searched sentences are predicted at most.
            k: The most neighbours of a token.
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
        pairs = None if dev is None else self.references([s for s, _ in dev], [t for _, t in dev])
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
        texts, deleted = self.store.texts, getattr(self.store, "deleted", ())
        if self._exact is None or self._exact.texts is not texts or len(self._exact.deleted) != len(deleted):
            self._exact = ExactMatches(texts, deleted)
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
            if finder is None:
                knn = self.decoder.batch(sources, search, self.stopwatch, at_once=False)
                tokens = [source.tokens for source in sources]
                for number, outputs in self.model.generate_stream(tokens, decoding, knn, batch_size):
                    yield number, BoundOutput(outputs, None)
                return
            for start in range(0, len(sources), batch_size):
                some = sources[start : start + batch_size]
                decode = partial(self._decode, some, search, decoding)
                yield from enumerate(self.term_decoder.generate(some, finder, decode), start)

    def _decode(
        self,
        sources: Sequence[Source],
        search: SearchSettings,
        decoding: DecodingSettings | Any,
        numbers: Sequence[int],
        terms: StepHook | None,
    ) -> list[list[Hypothesis]]:
        """The outputs of some of the sources, with a hook behind that of the neighbours."""
        some = [sources[number] for number in numbers]
        knn = self.decoder.batch(some, search, self.stopwatch)
        hook = knn if terms is None else StepHooks(knn, terms)
        return self.model.generate([source.tokens for source in some], decoding, hook)

    def _opened_glossary(self, glossary: GlossaryLike | None) -> Glossary | None:
        """The glossary that was given, or else the datastore's own."""
        if glossary is not None:
            return as_glossary(glossary, self.model.source_language, self.model.target_language)
        return stored_glossary(self.store) if isinstance(self.store, Datastore) else None

    def _measure_memory(self, combiner: str | None) -> None:
        """Train a combiner for a translation memory, or measure settings for one that has nothing to train."""
        settings = self.decoder.settings()
        if not settings.weight:
            return
        if combiner is None or issubclass(COMBINERS.get(combiner), TrainedCombiner):
            examples = examples_for(
                self.decoder,
                settings,
                general=general_sentences(self.model)[:MEMORY_GENERAL],
                sentences=MEMORY_SENTENCES,
                k=max(MEMORY_K),
            )
            if examples.usable:
                made = train(examples, settings, combiner or BuildSettings.combiner, max(MEMORY_K))
                if combiner is not None or made.better_than_fixed:
                    self.decoder.use_combiner(made.settings, made.combiner)
                    self.decoder.memory_settings = made.settings
                    return
        measured = calibrate(self.decoder, settings, MEMORY_SENTENCES, MEMORY_K, MEMORY_FLOOR)
        self.decoder.memory_settings = override(self.decoder.memory_settings, measured)


_SEARCH = frozenset(SearchSettings.__dataclass_fields__)
_KNOWN_BY_STORE = ("source_lang", "target_lang", "prompt", "key")


def _opened(
    store: Datastore | str | Path | None,
    memory: TranslationMemory | CorpusLike | None,
    model: Any,
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
