"""Prompt and target of decoder-only models, with a byte-level BPE as GPT-2 has it."""

from __future__ import annotations

import pickle

import pytest
import tokenizers
import transformers
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import SPECIAL

from knn_seq.datastore import Datastore
from knn_seq.models import load_model
from knn_seq.models.prompt import PromptTokenizer
from knn_seq.settings import ModelSettings

WORDS = [
    "Check",
    "the",
    "file",
    "again",
    "Verifique",
    "o",
    "arquivo",
    "Source:",
    "Target:",
    "English",
    "é",
    "日本",
    "=>",
]
PROMPTS = [
    None,  # the default
    "Portuguese: {source} English:",
    "Portuguese: {source} English: ",
    "{source}",
    "{source} ",
    "{source} =>",
    "{source}\n\n",
    'Portuguese: "{source}" English: "',
    "葡萄牙语：{source}\n英语：",
]


def byte_level_tokenizer():
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE())
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<s>", "<pad>", "</s>", "<|assistant|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator([f"{a} {b}\n{a}: {b}" for a in WORDS for b in WORDS], trainer)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        additional_special_tokens=["<|assistant|>"],
    )


TOKENIZER = byte_level_tokenizer()
LANGUAGES = {"source_lang": "Portuguese", "target_lang": "English"}


def prompted(prompt, **languages):
    return PromptTokenizer(TOKENIZER, ModelSettings("tiny", prompt=prompt, **languages))


def first_token(prompt, target="Check the file"):
    tokenizer = prompted(prompt)
    return tokenizer.token(tokenizer.encode_targets([target])[0][0])


@pytest.mark.parametrize("prompt", ["Portuguese: {source} English:", "{source} =>", "{source}", "{source} "])
def test_a_target_behind_a_word_begins_with_a_space(prompt):
    assert first_token(prompt) == "ĠCheck"


@pytest.mark.parametrize(
    "prompt", [None, "{source}\n", '"{source}" = "', "{source} (", "{source}<|assistant|>", "{source}："]
)
def test_a_target_behind_a_new_line_or_a_bracket_begins_without(prompt):
    assert first_token(prompt) == "Check"


@given(
    st.sampled_from(PROMPTS),
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join),
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join),
)
def test_prompt_and_target_have_the_tokens_of_the_text_that_they_are_together(prompt, source, target):
    tokenizer = prompted(prompt)
    [read], [written] = tokenizer.encode_sources([source]), tokenizer.encode_targets([target])
    assert written[-1] == TOKENIZER.eos_token_id
    assert tokenizer.decode(written) == target
    together = TOKENIZER.decode([*read, *written[:-1]])
    assert TOKENIZER(together)["input_ids"] == [*read, *written[:-1]]


def test_a_text_that_the_tokenizer_joins_with_the_prompt_keeps_its_own_tokens():
    tokenizer = prompted("{source}\n")
    assert TOKENIZER.decode(tokenizer.encode_targets(["\nCheck"])[0][:-1]) == "\nCheck"


CHATS = {  # a newline before an answer, as Qwen has it, and a space, as Mistral
    "Check": "{% for m in messages %}<s>{{ m.role }}\n{{ m.content }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant\n{% endif %}",
    "ĠCheck": "{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]{% else %} {{ m.content }}"
    "</s>{% endif %}{% endfor %}",
}


@pytest.mark.parametrize("first", CHATS)
def test_the_template_of_a_chat_says_what_stands_before_an_answer(first):
    chat = byte_level_tokenizer()
    chat.chat_template = CHATS[first]
    tokenizer = PromptTokenizer(chat, ModelSettings("tiny", **LANGUAGES))
    assert tokenizer.token(tokenizer.encode_targets(["Check"])[0][0]) == first
    assert "Translate from Portuguese to English." in tokenizer.prompt
    assert "{source}" in tokenizer.prompt
    assert pickle.loads(pickle.dumps(tokenizer)).encode_targets(["Check"]) == tokenizer.encode_targets(["Check"])


def test_the_prompt_is_recorded_and_shown(tmp_path, knn_seq):
    config = transformers.GPT2Config(
        vocab_size=len(TOKENIZER), n_embd=32, n_layer=2, n_head=4, n_positions=256, **SPECIAL
    )
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path / "model")
    TOKENIZER.save_pretrained(tmp_path / "model")
    (tmp_path / "train.tsv").write_text("".join(f"{word} o arquivo\t{word} the file\n" for word in WORDS))
    command = ("build", tmp_path / "store", "--model", tmp_path / "model", "--corpus", tmp_path / "train.tsv")
    code, out, err = knn_seq(*command, "--target-lang", "English", "--index-recipe", "Flat")
    assert code == 0, err
    shown = r'"Source: {source}\nEnglish:\n"'
    assert shown in out
    assert shown in knn_seq("info", tmp_path / "store")[1]
    store = Datastore(tmp_path / "store")
    assert store.model_settings.prompt is None  # the tokenizer's own template would no longer be taken
    store.require_fitting(load_model(store.model_settings))
    assert knn_seq(*command, "--target-lang", "English", "--index-recipe", "Flat", "-q")[0] == 0
