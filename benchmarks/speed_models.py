"""Models and datastores for measuring speed: weights may be random and keys made up, sizes and text are real."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from knn_seq import Datastore
from knn_seq.corpus import SentencePair, open_corpus, split_corpus
from knn_seq.demo.run import write_tsv
from knn_seq.models import Model, PairTokenizer, TokenPair, load_model
from knn_seq.models.base import Hypothesis, Scored
from knn_seq.models.encoder_decoder import EncoderDecoderModel
from knn_seq.models.network import NetworkModel
from knn_seq.settings import ModelSettings

DEMO_CORPUS = Path(__file__).parent.parent / "src" / "knn_seq" / "demo" / "bible.pt-en.tsv.gz"
VOCABULARY, OPUS_VOCABULARY = 32_000, 65_001
SIZES = {  # width, feed-forward, layers of each side, heads
    "marian-base": (512, 2048, 6, 8),
    "marian-big": (1024, 4096, 6, 16),
}
JITTER = 0.05  # of the keys' standard deviation: copies are neighbours of each other, not the same
ENTRIES = {"tiny": 20_000, "100k": 100_000, "1m": 1_100_000, "10m": 10_000_000}  # about; all verses give 1.1 million
TOKENS_PER_SENTENCE = 35  # of the demo's text


def speed_model(name: str, dtype: str | None = None) -> NetworkModel:
    """`firefox`, the real small model, also with its shortlist, or a Marian network with random weights, never ending.

    Args:
        name: `firefox`, `firefox-shortlist`, or a name of `SIZES`.
        dtype: See `ModelSettings`.
    """
    shortlist = name == "firefox-shortlist"
    firefox = load_model(ModelSettings("firefox:pt-en", device="cpu", dtype=dtype, shortlist=shortlist))
    assert isinstance(firefox, NetworkModel)
    if name.startswith("firefox"):
        return firefox
    network = random_marian(SIZES[name], VOCABULARY)
    settings = ModelSettings(f"random:{name}", device="cpu", dtype=dtype)
    return EncoderDecoderModel(network, firefox.tokenizer, "firefox", settings, [1])


def opus_model(dtype: str = "float32") -> NetworkModel:
    """A Marian network of the base size with as many words as OPUS-MT's, random weights, and outputs that never end."""
    tokenizer = FoldedTokenizer(load_model(ModelSettings("firefox:pt-en", device="cpu")).tokenizer)
    padding = OPUS_VOCABULARY - 1
    network = random_marian(SIZES["marian-base"], OPUS_VOCABULARY, padding)
    settings = ModelSettings("random:marian-opus", device="cpu", dtype=dtype)
    return EncoderDecoderModel(network, tokenizer, "folded", settings, [padding])


def random_marian(sizes: tuple[int, int, int, int], vocabulary: int, padding: int = 1) -> Any:
    """A network of these sizes."""
    width, feed_forward, layers, heads = sizes
    torch.manual_seed(0)
    config = transformers.MarianConfig(
        vocab_size=vocabulary,
        d_model=width,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=feed_forward,
        decoder_ffn_dim=feed_forward,
        pad_token_id=padding,
        eos_token_id=None,  # every output has as many tokens as it may have, so that systems do the same work
        forced_eos_token_id=None,
        decoder_start_token_id=padding,
    )
    network = transformers.MarianMTModel(config)
    network.generation_config.eos_token_id = None
    return network


class FoldedTokenizer(PairTokenizer):
    """A tokenizer for a vocabulary that is larger than its own: words begin again behind its last."""

    def __init__(self, tokenizer: PairTokenizer) -> None:
        self.tokenizer = tokenizer

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        """See `PairTokenizer`."""
        return self.tokenizer.encode_sources(texts)

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        """See `PairTokenizer`."""
        return self.tokenizer.encode_targets(texts)

    def decode(self, tokens: Sequence[int]) -> str:
        """See `PairTokenizer`."""
        return self.tokenizer.decode([token % VOCABULARY for token in tokens])

    def token(self, token: int) -> str:
        """See `PairTokenizer`."""
        return self.tokenizer.token(token % VOCABULARY)


class JitteredModel(Model):
    """Gives a sentence pair that comes again the keys that it had, a little moved: many keys at the price of few.

    Args:
        model: Computes keys and sentence vectors of pairs that are new.
    """

    def __init__(self, model: NetworkModel) -> None:
        self.model = model
        self.settings, self.tokenizer, self.fingerprint = model.settings, model.tokenizer, model.fingerprint
        self.architecture, self.dimension, self.max_length = model.architecture, model.dimension, model.max_length
        self.device = model.device
        self._keys: dict[tuple[int, ...], Tensor] = {}
        self._vectors: dict[tuple[int, ...], Tensor] = {}
        self._random = torch.Generator().manual_seed(0)

    def keys(self, pairs: Sequence[TokenPair]) -> Tensor:
        """See `Model.keys`."""
        named = [((*pair.source, -1, *pair.target), pair) for pair in pairs]
        new = {name: pair for name, pair in named if name not in self._keys}
        if new:
            made = self.model.keys(list(new.values())).half()  # as they are stored: a million of them have to fit
            parts = torch.split(made, [len(pair.target) for pair in new.values()])
            self._keys.update(zip(new, parts, strict=True))
        return self._moved(torch.cat([self._keys[name] for name, _ in named]).float())

    def sentence_vectors(self, sources: Sequence[Sequence[int]]) -> Tensor:
        """See `Model.sentence_vectors`."""
        new = [source for source in sources if tuple(source) not in self._vectors]
        if new:
            self._vectors.update(zip(map(tuple, new), self.model.sentence_vectors(new), strict=True))
        return self._moved(torch.stack([self._vectors[tuple(source)] for source in sources]))

    def score(self, pairs: Sequence[TokenPair]) -> Scored:
        """See `Model.score`."""
        return self.model.score(pairs)

    def generate(self, *arguments: Any, **named: Any) -> list[list[Hypothesis]]:
        """See `Model.generate`."""
        return self.model.generate(*arguments, **named)

    def _moved(self, vectors: Tensor) -> Tensor:
        noise = torch.randn(vectors.shape, generator=self._random)
        return vectors + JITTER * vectors.std() * noise


def demo_text() -> tuple[list[SentencePair], list[SentencePair]]:
    """All of the demo's text: sentence pairs for datastores, and 500 that no datastore has."""
    pairs = [line for line in open_corpus(DEMO_CORPUS) if isinstance(line, SentencePair)]
    train, _, test = split_corpus(pairs, (0, 500), 1)
    return train, test


def sized_store(folder: Path, name: str, model: NetworkModel, size: str) -> tuple[Datastore, list[SentencePair]]:
    """The datastore of a model by name and a size of `ENTRIES`, in `folder/NAME-SIZE`; see `speed_store`."""
    sentences = ENTRIES[size] // TOKENS_PER_SENTENCE
    computed = sentences if name == "firefox" else min(sentences // 10, 2_500)  # the larger models take their time
    return speed_store(folder / f"{name}-{size}", model, ENTRIES[size], computed, sentence_search="encoder")


def held_out_states(model: NetworkModel, pairs: Sequence[SentencePair], count: int) -> Tensor:
    """So many states of the decoder while it reads sentence pairs, (count, dimension), in random order."""
    sources = model.tokenizer.encode_sources([pair.source for pair in pairs])
    targets = model.tokenizer.encode_targets([pair.target for pair in pairs])
    states = torch.cat([model.keys([TokenPair(*pair)]).float().cpu() for pair in zip(sources, targets, strict=True)])
    return states[torch.randperm(len(states), generator=torch.Generator().manual_seed(0))[:count]]


def speed_store(
    folder: Path, model: NetworkModel, entries: int, computed: int, **settings: Any
) -> tuple[Datastore, list[SentencePair]]:
    """A datastore of about so many entries out of the demo's text, and sentences to translate with it.

    Args:
        folder: Where it is made, or found.
        model: The model.
        entries: How many; beyond those of `computed` sentences they are jittered copies.
        computed: Sentences of the demo's text whose keys are really computed.
        **settings: Of the build.
    """
    train, test = demo_text()
    train = train[:: max(len(train) // computed, 1)][:computed]
    tokens = sum(map(len, model.tokenizer.encode_targets([pair.target for pair in train])))
    copies = max(round(entries / tokens), 1)
    write_tsv(folder / "train.tsv", train * copies)
    source = JitteredModel(model) if copies > 1 else model
    store = Datastore.build(folder / "store", source, folder / "train.tsv", **{"calibration_sentences": 0, **settings})
    return store, test
