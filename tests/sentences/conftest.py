"""Encoders of sentences as folders, and every search over the same corpus of numbers."""

from __future__ import annotations

import numpy as np
import pytest
import tokenizers
import torch
import transformers
from tiny_models import SPECIAL, VOCABULARY, make_model, number_tokenizer

from knn_seq.index import INDEXES
from knn_seq.models import Source
from knn_seq.sentences.base import sentence_search
from knn_seq.sentences.lexical import LexicalSearch

SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 20,
}


@pytest.fixture(scope="session")
def model():
    return make_model("marian")


@pytest.fixture(scope="session")
def save_encoder(tmp_path_factory):
    """Save a tiny "Bert" or "Roberta" with the tokenizer of numbers; returns the network and the folder."""
    made = {}

    def save(kind):
        if kind not in made:
            torch.manual_seed(3)
            network = getattr(transformers, f"{kind}Model")(
                getattr(transformers, f"{kind}Config")(**SIZES, **SPECIAL)
            ).eval()
            with torch.no_grad():
                for weight in network.parameters():
                    weight.add_(0.1 * torch.randn_like(weight))
            path = tmp_path_factory.mktemp(kind)
            network.save_pretrained(path)
            number_tokenizer().save_pretrained(path)
            made[kind] = network, str(path)
        return made[kind]

    return save


@pytest.fixture(scope="session")
def static_embedding(tmp_path_factory):
    """A sentence-transformers model that gives a sentence the mean of its words' vectors; the vectors, the folder."""
    library = pytest.importorskip("sentence_transformers")
    modules = pytest.importorskip("sentence_transformers.models")
    vocabulary = {"<unk>": 0} | {str(number): number for number in range(1, VOCABULARY)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    vectors = np.random.default_rng(8).normal(size=(VOCABULARY, 12)).astype(np.float32)
    path = tmp_path_factory.mktemp("static")
    embedding = modules.StaticEmbedding(tokenizer, embedding_weights=vectors)
    library.SentenceTransformer(modules=[embedding], device="cpu").save(str(path))
    return vectors, str(path)


def number_sources(count, seed):
    """Sources of up to 9 random numbers, with the tokens that the models of tiny_models read."""
    generator = np.random.default_rng(seed)
    rows = [generator.integers(4, VOCABULARY, generator.integers(1, 10)).tolist() for _ in range(count)]
    return [Source(" ".join(map(str, row)), [*row, SPECIAL["eos_token_id"]]) for row in rows]


@pytest.fixture(scope="session")
def sources():
    return number_sources


@pytest.fixture(scope="session")
def ready_search(model, sources):
    """The search of that spec over 60 sentences, ready to be asked."""

    def ready(spec):
        search = sentence_search(spec, model)
        corpus = sources(60, seed=1)
        if isinstance(search, LexicalSearch):
            search.fit(corpus)
        else:
            vectors = search.vectors(corpus)
            search.fit(vectors.numpy())
            search.index = INDEXES.get("faiss").build(search.transform(vectors).numpy(), "Flat", "l2")
        return search

    return ready
