"""Tiny language models with a real byte-level tokenizer, and text for them."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import tokenizers
import torch
import transformers

SUBJECTS = ["the cat", "a dog", "the old king", "my sister", "the clerk"]
VERBS = ["sees", "opens", "finds", "carries", "forgets"]
OBJECTS = ["the green door", "a letter", "three coins", "the river", "an answer"]
SENTENCES = [" ".join(words) for words in itertools.product(SUBJECTS, VERBS, OBJECTS)]
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ["<s>", "<pad>", "</s>", "<|im_start|>", "<|im_end|>"]


def text_of(sentences: int, seed: int) -> str:
    """Sentences in random order, a few in a line."""
    chosen = np.random.default_rng(seed).choice(SENTENCES, sentences)
    lines = [". ".join(chosen[start : start + 3]) + "." for start in range(0, sentences, 3)]
    return "\n".join(lines) + "\n"


def byte_tokenizer(
    texts: list[str], vocabulary: int = 400, begins: bool = False, chat: bool = False
) -> transformers.PreTrainedTokenizerFast:
    """A byte-level BPE of some texts.

    Args:
        texts: What it is trained on.
        vocabulary: Its size.
        begins: Whether every text begins with a special token, as Llama's do.
        chat: Whether it has a chat template; answers then end with another token than texts do.
    """
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE())
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=SPECIAL,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    if begins:
        bpe.post_processor = tokenizers.processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 0)])
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        additional_special_tokens=["<|im_start|>", "<|im_end|>"],
    )
    if chat:
        made.chat_template = CHAT_TEMPLATE
    return made


def language_network(kind: str, vocabulary: int, positions: int = 64, width: int = 32) -> transformers.PreTrainedModel:
    """A small GPT-2, Llama or Qwen with random weights."""
    torch.manual_seed(0)
    special = {"pad_token_id": 1, "eos_token_id": 2, "bos_token_id": 0}
    if kind == "gpt2":
        config = transformers.GPT2Config(
            vocab_size=vocabulary, n_embd=width, n_layer=2, n_head=4, n_positions=positions, **special
        )
        return transformers.GPT2LMHeadModel(config).eval()
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=positions,
        **special,
    )
    return getattr(transformers, f"{kind}ForCausalLM")(config).eval()


def save(network: transformers.PreTrainedModel, tokenizer: transformers.PreTrainedTokenizerFast, path: Path) -> str:
    """A folder that from_pretrained loads."""
    network.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return str(path)


def train_language_model(network: transformers.PreTrainedModel, batches: list[dict], steps: int, rate: float) -> None:
    """Train on batches of input_ids, attention_mask and labels, again and again."""
    torch.manual_seed(0)
    optimiser = torch.optim.AdamW(network.parameters(), lr=rate)
    network.train()
    for step in range(steps):
        network(**batches[step % len(batches)]).loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
    network.eval()


PORTUGUESE = {
    "o gato": "the cat",
    "um cachorro": "a dog",
    "o velho rei": "the old king",
    "minha irmã": "my sister",
    "o escriturário": "the clerk",
    "vê": "sees",
    "abre": "opens",
    "acha": "finds",
    "carrega": "carries",
    "esquece": "forgets",
    "a porta verde": "the green door",
    "uma carta": "a letter",
    "três moedas": "three coins",
    "o rio": "the river",
    "uma resposta": "an answer",
}


def translated_sentences() -> list[tuple[str, str]]:
    """Portuguese sentences with their English translations, all that these words make."""
    parts = [[(pt, en) for pt, en in PORTUGUESE.items() if en in group] for group in (SUBJECTS, VERBS, OBJECTS)]
    return [(" ".join(pt for pt, _ in words), " ".join(en for _, en in words)) for words in itertools.product(*parts)]


def answer_batch(sources: list[list[int]], targets: list[list[int]]) -> dict[str, torch.Tensor]:
    """Prompts and answers to learn from: only the answers count."""
    rows = [[*source, *target] for source, target in zip(sources, targets, strict=True)]
    width = max(map(len, rows))
    tokens = torch.tensor([row + [1] * (width - len(row)) for row in rows])
    labels = torch.full_like(tokens, -100)
    for place, (source, target) in enumerate(zip(sources, targets, strict=True)):
        labels[place, len(source) : len(source) + len(target)] = torch.tensor(target)
    return {"input_ids": tokens, "attention_mask": (tokens != 1).long(), "labels": labels}
