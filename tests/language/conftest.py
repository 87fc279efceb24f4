"""Language models and datastores of text that several tests share."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from language_models import (
    answer_batch,
    byte_tokenizer,
    language_network,
    save,
    text_of,
    train_language_model,
    translated_sentences,
)

from knn_seq import Datastore
from knn_seq.models.prompt import SYSTEM_MESSAGE, PromptTokenizer
from knn_seq.settings import ModelSettings


@pytest.fixture(scope="session")
def language_model(tmp_path_factory):
    """A folder with a tiny language model of the kind that is asked for; GPT-2 has learned a little."""
    made = {}

    def make(kind="gpt2"):
        if kind not in made:
            tokenizer = byte_tokenizer([text_of(300, 0)], begins=kind != "gpt2")
            network = language_network(kind, len(tokenizer))
            if kind == "gpt2":
                tokens = torch.tensor(tokenizer(text_of(120, 1))["input_ids"])
                windows = tokens[: len(tokens) // 48 * 48].view(-1, 48)
                train_language_model(network, [{"input_ids": windows, "labels": windows}], 40, 3e-3)
            made[kind] = save(network, tokenizer, tmp_path_factory.mktemp(kind))
        return made[kind]

    return make


@pytest.fixture(scope="session")
def text_file(tmp_path_factory):
    """A text that datastores are built from."""
    path = tmp_path_factory.mktemp("text") / "train.txt"
    path.write_text(text_of(150, 2))
    return path


@pytest.fixture(scope="session")
def test_file(tmp_path_factory):
    """Another text of the same kind."""
    path = tmp_path_factory.mktemp("text") / "test.txt"
    path.write_text(text_of(30, 3))
    return path


@pytest.fixture(scope="session")
def text_store(tmp_path_factory, language_model, text_file):
    """A finished datastore of plain text, with a learned combiner."""
    path = tmp_path_factory.mktemp("text-store") / "store"
    return Datastore.build(path, language_model(), text=text_file, index_recipe="Flat", key_dtype="float32")


@pytest.fixture(scope="session")
def chat_model(tmp_path_factory):
    """A folder with a tiny Qwen that translates in a chat, with examples before the sentence and without."""
    pairs = translated_sentences()
    instruction = SYSTEM_MESSAGE.replace("{source_lang}", "Portuguese").replace("{target_lang}", "English")
    texts = [f"{source}\n{target}" for source, target in pairs]
    tokenizer = byte_tokenizer([*texts, *[f"{instruction}\nsystem\nuser\nassistant\n"] * 20], 600, chat=True)
    prompted = PromptTokenizer(tokenizer, ModelSettings("", source_lang="pt", target_lang="en", prompt="chat"))
    random = np.random.default_rng(0)
    batches = []
    for number in range(40):
        some = [pairs[place] for place in random.choice(len(pairs), 16)]
        shots = [[pairs[place] for place in random.choice(len(pairs), number % 3)] for _ in some]
        prompts = prompted.encode_with_shots([source for source, _ in some], shots, None)
        batches.append(answer_batch(prompts, prompted.encode_targets([target for _, target in some])))
    network = language_network("Qwen2", len(tokenizer), positions=512, width=64)
    train_language_model(network, batches, 150, 4e-3)
    return save(network, tokenizer, tmp_path_factory.mktemp("chat-model"))
