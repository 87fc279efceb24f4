"""Run with a Python that has COMET: make a tiny COMET checkpoint with random weights, and let COMET score with it.

python tiny_comet.py FOLDER    makes FOLDER/checkpoints/model.ckpt and all that it needs; reads segments as a JSON list
                               from standard input and writes the scores of COMET's own predict()
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

WORDS = ["the", "cat", "dog", "house", "is", "in", "on", "a", "o", "gato", "casa", "está", "na", "cão", ".", "verily"]


def make(folder: Path) -> None:
    import tokenizers
    import torch
    import transformers
    import yaml
    from comet.models import RegressionMetric

    encoder = folder / "encoder"
    encoder.mkdir(parents=True)
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    letters = [chr(letter) for letter in range(ord("a"), ord("z") + 1)]
    pieces = [(piece, 0.0) for piece in special] + [("▁" + word, -2.0) for word in WORDS]
    pieces += [(letter, -9.0) for letter in letters] + [("▁", -9.0), ("<mask>", 0.0)]
    backend = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, unk_id=3))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    backend.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    names = {"bos_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "cls_token": "<s>", "unk_token": "<unk>"}
    names |= {"pad_token": "<pad>", "mask_token": "<mask>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **names).save_pretrained(encoder)
    settings = json.loads((encoder / "tokenizer_config.json").read_text())
    settings["tokenizer_class"] = "XLMRobertaTokenizerFast"
    (encoder / "tokenizer_config.json").write_text(json.dumps(settings))
    transformers.XLMRobertaConfig(
        vocab_size=len(pieces),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=70,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
        type_vocab_size=1,
    ).save_pretrained(encoder)
    torch.manual_seed(7)
    model = RegressionMetric(
        pretrained_model=str(encoder), hidden_sizes=[24, 8], load_pretrained_weights=False, local_files_only=True
    )
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 2:
                weight.normal_(std=weight.shape[1] ** -0.5)  # the score is to depend on every word
    (folder / "checkpoints").mkdir()
    checkpoint = {"state_dict": model.state_dict(), "hyper_parameters": dict(model.hparams)}
    torch.save({**checkpoint, "pytorch-lightning_version": "2.0.0"}, folder / "checkpoints" / "model.ckpt")
    (folder / "hparams.yaml").write_text(yaml.safe_dump({"class_identifier": "regression_metric"}))


def predict(folder: Path) -> list[float]:
    from comet import load_from_checkpoint

    model = load_from_checkpoint(str(folder / "checkpoints" / "model.ckpt"))
    return model.predict(json.load(sys.stdin), gpus=0, progress_bar=False).scores


if __name__ == "__main__":
    answer = os.dup(1)
    os.dup2(2, 1)
    make(Path(sys.argv[1]))
    scores = predict(Path(sys.argv[1]))
    with open(answer, "w", encoding="utf-8") as file:
        json.dump(scores, file)
