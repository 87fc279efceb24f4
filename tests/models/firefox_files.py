"""Makes Marian files and model folders of a few hundred random weights, with the layout written out by hand."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import sentencepiece

D, INNER, ENCODER_LAYERS, DECODER_LAYERS, HEADS = 8, 12, 2, 2, 2
OPTIONS = (
    f"type: transformer\ndec-cell: ssru\ntransformer-heads: {HEADS}\ntied-embeddings-all: true\ndim-vocabs:\n  - 9\n"
)
TEXT = ["o gato está em casa", "the cat is at home", "a casa é do gato e da gata", "the house is old and so is she"]


def marian_bytes(items: list[tuple[str, int, tuple[int, ...], bytes]], version: int = 1) -> bytes:
    """A file with these items: name, type, shape, data."""
    items = [(name, kind, shape, data + bytes(-len(data) % 256)) for name, kind, shape, data in items]
    head = struct.pack("<QQ", version, len(items))
    for name, kind, shape, data in items:
        head += struct.pack("<4Q", len(name.encode()) + 1, kind, len(shape), len(data))
    head += b"".join(name.encode() + b"\0" for name, *_ in items)
    head += b"".join(struct.pack(f"<{len(shape)}i", *shape) for _, _, shape, _ in items)
    padding = -(len(head) + 8) % 256
    return head + struct.pack("<Q", padding) + bytes(padding) + b"".join(data for *_, data in items)


def float_item(name: str, array: np.ndarray) -> tuple[str, int, tuple[int, ...], bytes]:
    return name, 0x404, array.shape, array.astype("<f4").tobytes()


def int8_item(
    name: str, values: np.ndarray, multiplier: float, transposed: bool
) -> tuple[str, int, tuple[int, ...], bytes]:
    stored = np.ascontiguousarray(values.T if transposed else values).astype("i1")
    return name, 0x4101, values.shape, stored.tobytes() + struct.pack("<f", multiplier)


def options_item(text: str) -> tuple[str, int, tuple[int, ...], bytes]:
    data = text.encode() + b"\0"
    return "special:model.yml", 0x101, (len(data),), data


def random_tensors(vocab_size: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Every tensor of a small model, by Marian's names."""
    shapes: dict[str, tuple[int, int]] = {"Wemb": (vocab_size, D), "decoder_ff_logit_out_b": (1, vocab_size)}
    for prefix, attention in [(f"encoder_l{layer}", "self") for layer in range(1, ENCODER_LAYERS + 1)] + [
        (f"decoder_l{layer}", "context") for layer in range(1, DECODER_LAYERS + 1)
    ]:
        for letter in "qkvo":
            shapes[f"{prefix}_{attention}_W{letter}"] = (D, D)
            shapes[f"{prefix}_{attention}_b{letter}"] = (1, D)
        norms = [f"{attention}_Wo", "ffn_ffn"]
        shapes[f"{prefix}_ffn_W1"], shapes[f"{prefix}_ffn_b1"] = (D, INNER), (1, INNER)
        shapes[f"{prefix}_ffn_W2"], shapes[f"{prefix}_ffn_b2"] = (INNER, D), (1, D)
        if attention == "context":
            norms.append("rnn_ffn")
            shapes[f"{prefix}_rnn_W"] = shapes[f"{prefix}_rnn_Wf"] = (D, D)
            shapes[f"{prefix}_rnn_bf"] = (1, D)
        for norm in norms:
            shapes[f"{prefix}_{norm}_ln_scale"] = shapes[f"{prefix}_{norm}_ln_bias"] = (1, D)
    random = np.random.default_rng(seed)
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def write_vocabulary(path: Path, vocab_size: int = 40) -> None:
    """A SentencePiece vocabulary with the ids of a Firefox model: end 0, unknown 1, no start."""
    with path.open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(TEXT * 10),
            model_writer=file,
            model_type="bpe",
            vocab_size=vocab_size,
            eos_id=0,
            unk_id=1,
            bos_id=-1,
            pad_id=-1,
            minloglevel=2,
        )


def write_folder(folder: Path, tensors: dict[str, np.ndarray], options: str = OPTIONS) -> Path:
    """A model folder; returns the model file."""
    folder.mkdir(exist_ok=True)
    path = folder / "model.xxyy.bin"
    path.write_bytes(marian_bytes([*(float_item(*item) for item in tensors.items()), options_item(options)]))
    write_vocabulary(folder / "vocab.xxyy.spm")
    return path
