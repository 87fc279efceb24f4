"""Models and datastores that several tests share."""

from __future__ import annotations

import numpy as np
import pytest
import tokenizers
import transformers
from tiny_models import VOCABULARY, make_network

from knn_seq.datastore import Datastore


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


@pytest.fixture(scope="session")
def save_model(tmp_path_factory):
    """Save a tiny network with its tokenizer as a folder that from_pretrained loads; returns the path."""
    made = {}

    def save(kind="marian", seed=0):
        if (kind, seed) not in made:
            path = tmp_path_factory.mktemp(f"{kind}-{seed}")
            make_network(kind, seed).save_pretrained(path)
            number_tokenizer().save_pretrained(path)
            made[kind, seed] = path
        return str(made[kind, seed])

    return save


@pytest.fixture(scope="session")
def number_corpus(tmp_path_factory):
    """A TSV file of 120 pairs of random numbers."""
    path = tmp_path_factory.mktemp("corpus") / "train.tsv"
    generator = np.random.default_rng(5)
    path.write_text("".join(number_line(generator) for _ in range(120)))
    return path


def number_line(generator: np.random.Generator) -> str:
    sides = (generator.integers(4, VOCABULARY, generator.integers(1, 9)) for _ in range(2))
    return "\t".join(" ".join(map(str, side)) for side in sides) + "\n"


@pytest.fixture(scope="session")
def number_store(tmp_path_factory, save_model, number_corpus):
    """A finished datastore of the tiny Marian model."""
    path = tmp_path_factory.mktemp("number-store") / "store"
    return Datastore.build(path, save_model(), number_corpus, index="Flat", quiet=True)
