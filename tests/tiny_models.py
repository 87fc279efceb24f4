"""Networks of every kind we support, a few thousand random weights each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import tokenizers
import torch
import transformers

from knn_seq.datastore import Datastore
from knn_seq.models import Model, PairTokenizer
from knn_seq.models.decoder_only import DecoderOnlyModel
from knn_seq.models.encoder_decoder import EncoderDecoderModel
from knn_seq.settings import ModelSettings

VOCABULARY = 61
END = 2


class NumberTokenizer(PairTokenizer):
    """Text is numbers: "5 7" is the tokens 5 and 7."""

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        return [[*map(int, text.split()), END] for text in texts]

    encode_targets = encode_sources

    def decode(self, tokens: Sequence[int]) -> str:
        return " ".join(str(token) for token in tokens if token != END)

    def token(self, token: int) -> str:
        return str(token)


SIZES = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 128,
}
SPECIAL = {"pad_token_id": 1, "eos_token_id": END, "bos_token_id": 0}
SEQ2SEQ = SPECIAL | {"decoder_start_token_id": END}


def _marian() -> transformers.PreTrainedModel:
    return transformers.MarianMTModel(
        transformers.MarianConfig(**SIZES, **SPECIAL, decoder_start_token_id=1, forced_eos_token_id=None)
    )


def _bart() -> transformers.PreTrainedModel:
    return transformers.BartForConditionalGeneration(
        transformers.BartConfig(**SIZES, **SEQ2SEQ, forced_eos_token_id=None)
    )


def _mbart() -> transformers.PreTrainedModel:
    return transformers.MBartForConditionalGeneration(
        transformers.MBartConfig(**SIZES, **SEQ2SEQ, forced_eos_token_id=None)
    )


def _m2m100() -> transformers.PreTrainedModel:
    return transformers.M2M100ForConditionalGeneration(transformers.M2M100Config(**SIZES, **SEQ2SEQ))


def _fsmt() -> transformers.PreTrainedModel:
    sizes = {name: value for name, value in SIZES.items() if name != "vocab_size"}
    return transformers.FSMTForConditionalGeneration(
        transformers.FSMTConfig(
            langs=["pt", "en"],
            src_vocab_size=VOCABULARY,
            tgt_vocab_size=VOCABULARY,
            forced_eos_token_id=None,
            tie_word_embeddings=False,
            **sizes,
            **SEQ2SEQ,
        )
    )


def _t5() -> transformers.PreTrainedModel:
    config = transformers.T5Config(
        vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, **SEQ2SEQ
    )
    return transformers.T5ForConditionalGeneration(config)


def _gpt2() -> transformers.PreTrainedModel:
    config = transformers.GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=128, **SPECIAL)
    return transformers.GPT2LMHeadModel(config)


def _llama(kind: str = "Llama") -> transformers.PreTrainedModel:
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        **SPECIAL,
    )
    return getattr(transformers, f"{kind}ForCausalLM")(config)


NETWORKS: dict[str, Callable[[], transformers.PreTrainedModel]] = {
    "marian": _marian,
    "bart": _bart,
    "mbart": _mbart,
    "m2m100": _m2m100,
    "fsmt": _fsmt,
    "t5": _t5,
    "gpt2": _gpt2,
    "llama": _llama,
    "qwen2": lambda: _llama("Qwen2"),
}
DECODER_ONLY = {"gpt2", "llama", "qwen2"}


def make_network(kind: str, seed: int = 0) -> transformers.PreTrainedModel:
    """A network with random weights, so large that its states and its distribution depend on what it reads."""
    torch.manual_seed(seed)
    network = NETWORKS[kind]().eval()
    with torch.no_grad():
        for weight in network.parameters():
            if weight.dim() == 2:
                embedding = weight.shape[0] == VOCABULARY
                weight.mul_((0.7 if embedding else 1.2 / weight.shape[1] ** 0.5) / weight.std())
    return network


def make_model(kind: str, seed: int = 0, key: str = "ffn_in", dtype: str = "float32") -> Model:
    network = make_network(kind, seed)
    settings = ModelSettings(name=f"tiny:{kind}", key=key, dtype=dtype, device="cpu")
    if kind in DECODER_ONLY:
        return DecoderOnlyModel(network, NumberTokenizer(), "numbers", settings)
    # M2M100 and mBART read the target language before the first token.
    prefix = [network.config.decoder_start_token_id, *([7] if kind in ("m2m100", "mbart") else [])]
    return EncoderDecoderModel(network, NumberTokenizer(), "numbers", settings, prefix)


def number_tokenizer() -> transformers.PreTrainedTokenizerBase:
    """A real tokenizer file: words are the numbers 4 to 60."""
    vocabulary = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
    vocabulary |= {str(number): number for number in range(4, VOCABULARY)}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    backend.post_processor = tokenizers.processors.TemplateProcessing("$A </s>", special_tokens=[("</s>", 2)])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>"
    )


def number_line(generator: np.random.Generator) -> str:
    """A line of a TSV file: two sides of random numbers."""
    sides = (generator.integers(4, VOCABULARY, generator.integers(1, 9)) for _ in range(2))
    return "\t".join(" ".join(map(str, side)) for side in sides) + "\n"


def number_pairs(count: int = 40, seed: int = 3) -> list[tuple[list[int], list[int]]]:
    """Token pairs.  No source is short enough to be there twice: entries at the same distance would have no order."""
    generator = np.random.default_rng(seed)

    def side() -> list[int]:
        return [*generator.integers(8, VOCABULARY, generator.integers(3, 8)).tolist(), END]

    return [(side(), side()) for _ in range(count)]


def number_store_of(model: Model, folder: Path) -> Datastore:
    """A datastore of those pairs in a folder, built the usual way from text."""
    text = "".join("\t".join(" ".join(map(str, side[:-1])) for side in pair) + "\n" for pair in number_pairs())
    (folder / "train.tsv").write_text(text)
    options = {"key_dtype": "float32", "index_recipe": "Flat", "calibration_sentences": 0, "batch_tokens": 64}
    return Datastore.build(folder / "store", model, folder / "train.tsv", **options)
