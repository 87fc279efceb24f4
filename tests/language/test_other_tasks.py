"""Grammatical correction with BART and summarisation with T5: the commands of translation, as docs show them."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tokenizers
import torch
import transformers
from language_models import OBJECTS, SENTENCES, SUBJECTS, VERBS, save, train_language_model

SIZES = {"d_model": 48, "decoder_start_token_id": 2, "pad_token_id": 1, "eos_token_id": 2, "bos_token_id": 0}
BASE_FORMS = {"sees": "see", "opens": "open", "finds": "find", "carries": "carry", "forgets": "forget"}
STYLE = {"the green door": "the river", "a letter": "an answer"}  # what the domain writes in the place of the model's


def with_error(sentence):
    """The verb has lost its ending."""
    for right, wrong in BASE_FORMS.items():
        sentence = sentence.replace(right, wrong)
    return sentence


def corrections():
    return [(with_error(sentence), sentence) for sentence in SENTENCES]


def summaries():
    """Two sentences about one subject; the summary is the last one."""
    random = np.random.default_rng(1)
    pairs = []
    for _ in range(160):
        subject = random.choice(SUBJECTS)
        said = [f"{random.choice(VERBS)} {random.choice(OBJECTS)}" for _ in range(2)]
        pairs.append((" . ".join(f"{subject} {each}" for each in said), f"{subject} {said[-1]}"))
    return pairs


def word_tokenizer():
    words = sorted({word for pair in (*corrections(), *summaries()) for side in pair for word in side.split()})
    vocabulary = {word: number for number, word in enumerate(["<s>", "<pad>", "</s>", "<unk>", "summarize:", *words])}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    backend.post_processor = tokenizers.processors.TemplateProcessing("$A </s>", special_tokens=[("</s>", 2)])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>"
    )


def bart(vocabulary):
    layers = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in {"layers": 1, "attention_heads": 4, "ffn_dim": 96}.items()
    }
    config = transformers.BartConfig(
        vocab_size=vocabulary, max_position_embeddings=64, forced_eos_token_id=None, dropout=0.0, **layers, **SIZES
    )
    return transformers.BartForConditionalGeneration(config)


def t5(vocabulary):
    config = transformers.T5Config(
        vocab_size=vocabulary, d_kv=12, d_ff=96, num_layers=1, num_heads=4, dropout_rate=0.0, **SIZES
    )
    return transformers.T5ForConditionalGeneration(config)


TASKS = {
    "correction": (bart, corrections, None),
    "summarisation": (t5, summaries, "summarize: {source}"),
}


@pytest.mark.parametrize("task", TASKS)
def test_the_commands_of_translation_do_other_tasks(task, tmp_path, knn_seq):
    make, make_pairs, prompt = TASKS[task]
    pairs, tokenizer = make_pairs(), word_tokenizer()
    torch.manual_seed(0)
    network = make(len(tokenizer))
    sources = tokenizer([(prompt or "{source}").replace("{source}", source) for source, _ in pairs], padding=True)
    targets = tokenizer([target for _, target in pairs], padding=True)["input_ids"]
    labels = torch.tensor(targets)
    batch = {name: torch.tensor(sources[name]) for name in ("input_ids", "attention_mask")}
    train_language_model(network, [batch | {"labels": labels.masked_fill(labels == 1, -100)}], 130, 1e-2)
    model = save(network, tokenizer, tmp_path / "model")

    def styled(text):
        for usual, own in STYLE.items():
            text = text.replace(usual, own)
        return text

    lines = [f"{source}\t{styled(target)}\n" for source, target in pairs]
    (tmp_path / "train.tsv").write_text("".join(line for number, line in enumerate(lines) if number % 4))
    (tmp_path / "test.tsv").write_text("".join(lines[::4]))
    store = tmp_path / "store"
    written = ("--prompt", prompt) if prompt else ()
    code, _, err = knn_seq("build", store, "--model", model, "--corpus", tmp_path / "train.tsv", *written, "-q")
    assert code == 0, err
    (tmp_path / "in.txt").write_text(f"{pairs[0][0]}\n")
    code, out, err = knn_seq("translate", store, "--input", tmp_path / "in.txt", "--beam-size", "1", "-q")
    assert code == 0, err
    assert out.strip() == styled(pairs[0][1])
    evaluate = ("evaluate", store, "--test", tmp_path / "test.tsv", "--json", tmp_path / "found.json", "-q")
    code, _, err = knn_seq(*evaluate, "--stored", "0", "--beam-size", "1", "--max-length", "20")
    assert code == 0, err
    base, knn = json.loads((tmp_path / "found.json").read_text())["systems"]
    assert knn["bleu"] > base["bleu"] + 5
    usual = [target for _, target in pairs][::4]
    right = sum(text == target for text, target in zip(base["translations"], usual, strict=True))
    assert right > 0.8 * len(usual)  # the model alone does its task, in its own words
