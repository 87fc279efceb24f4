"""fairseq's checkpoints, loaded without fairseq."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from knn_seq.fairseq.checkpoint.converted import is_converted, load, save
from knn_seq.fairseq.checkpoint.folder import find_checkpoint, find_tokenizer, with_options_beside
from knn_seq.fairseq.checkpoint.network import make_network
from knn_seq.fairseq.checkpoint.reading import read_checkpoint
from knn_seq.fairseq.checkpoint.tokenizer import FairseqTokenizer
from knn_seq.fairseq.dictionary import EOS
from knn_seq.models.base import MODELS, Model, ModelBackend
from knn_seq.models.encoder_decoder import EncoderDecoderModel
from knn_seq.settings import DecodingSettings, ModelSettings

if TYPE_CHECKING:
    from transformers import GenerationConfig


@MODELS.register("fairseq")
class FairseqBackend(ModelBackend):
    """`fairseq:PATH` for a checkpoint, its folder, or a folder that `knn-seq convert` wrote."""

    @classmethod
    def recognises(cls, folder: Path) -> bool:
        """A folder that `knn-seq convert` wrote: Transformers would load its network, and not its tokenizer."""
        return is_converted(folder)

    @classmethod
    def load(cls, name: str, settings: ModelSettings) -> Model:
        """Read the network, and the dictionaries and BPE that belong to it."""
        network, tokenizer, prefix, _ = _read(name, settings)
        # Whoever told the languages, they are the model's: a datastore records them.
        settings = replace(settings, source_lang=tokenizer.source.language, target_lang=tokenizer.target.language)
        return FairseqModel(network, tokenizer, tokenizer.fingerprint(), settings, [EOS, *prefix])


class FairseqModel(EncoderDecoderModel):
    """A network that searches as fairseq does."""

    def _search_arguments(self, decoding: DecodingSettings | GenerationConfig, forced: int) -> dict[str, Any]:
        arguments = super()._search_arguments(decoding, forced)
        if isinstance(decoding, DecodingSettings) and decoding.beam_size > 1:
            arguments["early_stopping"] = True  # a search is over when it has as many outputs as beams
        return arguments


def convert(name: str, folder: str | Path, settings: ModelSettings) -> None:
    """Write a checkpoint as a folder of Transformers.

    Args:
        name: The checkpoint, without "fairseq:".
        folder: What to write; it must not exist, or be empty.
        settings: The languages and the folder of dictionaries, where the checkpoint does not tell them.
    """
    network, tokenizer, _, options = _read(name, settings)
    save(Path(folder), network, tokenizer, options)


def _read(name: str, settings: ModelSettings) -> tuple[Any, FairseqTokenizer, list[int], dict[str, Any]]:
    """The network, the tokenizer, what the decoder reads behind the end-of-sentence token, and the options."""
    if is_converted(Path(name)):
        folder = Path(name).resolve()
        network, options = load(folder)
    else:
        path = find_checkpoint(name)
        folder = path.resolve().parent
        checkpoint = read_checkpoint(path)
        network, options = make_network(checkpoint), with_options_beside(checkpoint.options, folder)
    rows = network.config.src_vocab_size, network.config.tgt_vocab_size
    tokenizer, prefix = find_tokenizer(options, folder, rows, settings)
    return network, tokenizer, prefix, options
