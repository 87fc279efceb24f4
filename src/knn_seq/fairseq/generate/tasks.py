"""fairseq's translation tasks with neighbours: what `--task` chooses."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import make_dataclass
from typing import Any

from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from fairseq.tasks.translation_multi_simple_epoch import TranslationMultiSimpleEpochTask

from knn_seq.decoding import KnnDecoder
from knn_seq.errors import InvalidSetting, KnnSeqError
from knn_seq.fairseq.checkpoint.tokenizer import dictionaries_fingerprint
from knn_seq.fairseq.dictionary import SPECIAL, Dictionary, join_pieces
from knn_seq.fairseq.generate.ensemble import KnnEnsemble
from knn_seq.fairseq.generate.fitting import require_fitting
from knn_seq.fairseq.generate.network import FairseqNetwork
from knn_seq.fairseq.generate.options import add_options, config_fields, given_options, open_datastores, search_options


@contextmanager
def one_sentence() -> Iterator[None]:
    """The border to fairseq: what the user can fix is said in a sentence and ends the program with code 2."""
    try:
        yield
    except KnnSeqError as error:
        print(f"knn-seq: {error}", file=sys.stderr)
        raise SystemExit(2) from error


class NeighbourTask:
    """What our tasks add to fairseq's own, which stand behind this in the order of inheritance."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.options = given_options(arguments[0])  # a configuration, or a namespace in fairseq's older tasks
        self.pieces = Dictionary(self.source_dictionary.symbols[len(SPECIAL) :])  # type: ignore[attr-defined]
        self.has_word_starts = self.pieces.has_word_starts()
        with one_sentence():
            self.stores = open_datastores(self.options)

    def build_generator(self, models: Sequence[Any], *arguments: Any, **named: Any) -> Any:
        """fairseq's own, around an ensemble of ours."""
        with one_sentence():
            decoders = self.open_decoders(models)
            settings = [decoder.settings() for decoder in decoders]
            generator = super().build_generator(models, *arguments, **named)  # type: ignore[misc]
            if any(each.weight for each in settings):
                if not isinstance(generator, SequenceGenerator):
                    raise InvalidSetting(f"Neighbours cannot join in {type(generator).__name__}: give --knn-weight 0.")
                padding = self.source_dictionary.pad()  # type: ignore[attr-defined]
                generator.model = KnnEnsemble(models, decoders, settings, self.source_text, padding).eval()
        return generator

    def open_decoders(self, models: Sequence[Any]) -> list[KnnDecoder]:
        """One decoder for the first model, or one for each, as there are datastores."""
        if len(self.stores) not in (0, 1, len(models)):
            raise InvalidSetting(
                f"There are {len(self.stores)} datastores (--knn-datastore) for {len(models)} models (--path): "
                "give one, or one for each model."
            )
        source, target = self.source_dictionary, self.target_dictionary  # type: ignore[attr-defined]
        vocabulary = dictionaries_fingerprint(source.symbols, target.symbols)
        decoders = []
        for store, network in zip(self.stores, models, strict=False):
            key = self.options.get("key", store.manifest.keys.kind)
            model = FairseqNetwork(network, key, self.decoder_prefix(), target.pad())
            require_fitting(store, model, vocabulary)
            decoders.append(KnnDecoder(store, model, search_options(self.options)))
        return decoders

    def decoder_prefix(self) -> list[int]:
        """What the decoder reads before the first target token."""
        return [self.target_dictionary.eos()]  # type: ignore[attr-defined]

    def inference_step(self, *arguments: Any, **named: Any) -> Any:
        """fairseq's own; searching may fail too."""
        with one_sentence():
            return super().inference_step(*arguments, **named)  # type: ignore[misc]

    def source_text(self, tokens: list[int]) -> str:
        """A source's words, as a datastore has them that was built from binarized text."""
        return join_pieces(self.pieces.decode(tokens), self.has_word_starts)


TranslationKnnConfig = make_dataclass("TranslationKnnConfig", config_fields(), bases=(TranslationConfig,))


@register_task("translation_knn", dataclass=TranslationKnnConfig)
class TranslationKnnTask(NeighbourTask, TranslationTask):  # type: ignore[misc]
    """`translation` with neighbours."""


@register_task("translation_multi_simple_epoch_knn")
class TranslationMultiSimpleEpochKnnTask(NeighbourTask, TranslationMultiSimpleEpochTask):  # type: ignore[misc]
    """`translation_multi_simple_epoch`, the task of M2M100 and its like, with neighbours."""

    @staticmethod
    def add_args(parser: ArgumentParser) -> None:
        """fairseq's options and ours."""
        TranslationMultiSimpleEpochTask.add_args(parser)
        add_options(parser)

    def decoder_prefix(self) -> list[int]:
        """With the target language's token where the model has one."""
        kind = self.args.langtoks["main"][1]
        if not kind:
            return super().decoder_prefix()
        language = self.data_manager.get_decoder_langtok(self.args.target_lang, kind)
        return [language] if self.args.lang_tok_replacing_bos_eos else [*super().decoder_prefix(), language]

    def source_text(self, tokens: list[int]) -> str:
        """The words without the language's token."""
        kind = self.args.langtoks["main"][0]
        languages = (self.args.source_lang, self.args.target_lang)
        language = self.data_manager.get_encoder_langtok(*languages, kind) if kind else None
        return super().source_text([token for token in tokens if token != language])
