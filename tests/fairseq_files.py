"""Checkpoints and data-bin folders in fairseq's formats, written by hand, and the slow obvious forward pass."""

from __future__ import annotations

import math
import struct
from argparse import Namespace
from pathlib import Path

import numpy as np
import torch

SOURCE_WORDS = [f"s{number}" for number in range(33)]
TARGET_WORDS = [f"t{number}" for number in range(37)]
EOS = 2

OPTIONS = {
    "arch": "transformer",
    "task": "translation",
    "source_lang": "xx",
    "target_lang": "yy",
    "data": "/nowhere/data-bin",
    "encoder_embed_dim": 32,
    "decoder_embed_dim": 32,
    "encoder_ffn_embed_dim": 48,
    "decoder_ffn_embed_dim": 40,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 2,
    "encoder_normalize_before": False,
    "decoder_normalize_before": False,
    "encoder_learned_pos": False,
    "decoder_learned_pos": False,
    "share_all_embeddings": False,
    "share_decoder_input_output_embed": False,
    "layernorm_embedding": False,
    "no_scale_embedding": False,
    "no_token_positional_embeddings": False,
    "no_decoder_final_norm": False,
    "activation_fn": "relu",
    "max_source_positions": 60,
    "max_target_positions": 50,
    "encoder_layerdrop": 0.2,
    "quant_noise_pq": 0,
    "adaptive_softmax_cutoff": None,
}


def make_weights(options: dict, rows: tuple[int, int] | None = None, seed: int = 0) -> dict[str, torch.Tensor]:
    """Random weights, so large that the distribution depends on what is read."""
    generator = torch.Generator().manual_seed(seed)
    shared = options["share_all_embeddings"]
    target_rows = len(TARGET_WORDS) + 4
    source_rows, target_rows = rows or (target_rows if shared else len(SOURCE_WORDS) + 4, target_rows)

    def matrix(outputs, inputs, scale=1.2):
        return torch.randn(outputs, inputs, generator=generator) * scale / inputs**0.5

    def linear(name, outputs, inputs):
        return {
            f"{name}.weight": matrix(outputs, inputs),
            f"{name}.bias": 0.1 * torch.randn(outputs, generator=generator),
        }

    def norm(name, width):
        return {
            f"{name}.weight": 1 + 0.2 * torch.randn(width, generator=generator),
            f"{name}.bias": 0.2 * torch.randn(width, generator=generator),
        }

    weights = {}
    for side, size in (("encoder", source_rows), ("decoder", target_rows)):
        width, inner = options[f"{side}_embed_dim"], options[f"{side}_ffn_embed_dim"]
        weights[f"{side}.version"] = torch.tensor([3.0])
        weights[f"{side}.embed_tokens.weight"] = matrix(size, width)
        if not options["no_token_positional_embeddings"]:
            if options[f"{side}_learned_pos"]:
                positions = options["max_source_positions" if side == "encoder" else "max_target_positions"]
                weights[f"{side}.embed_positions.weight"] = matrix(positions + 2, width, 1.5)
            else:
                weights[f"{side}.embed_positions._float_tensor"] = torch.zeros(1)
        if options["layernorm_embedding"]:
            weights |= norm(f"{side}.layernorm_embedding", width)
        for layer in range(options[f"{side}_layers"]):
            name = f"{side}.layers.{layer}"
            attentions = {"self_attn": width} | (
                {"encoder_attn": options["encoder_embed_dim"]} if side == "decoder" else {}
            )
            for attention, attended in attentions.items():
                weights |= linear(f"{name}.{attention}.k_proj", width, attended)
                weights |= linear(f"{name}.{attention}.v_proj", width, attended)
                weights |= linear(f"{name}.{attention}.q_proj", width, width)
                weights |= linear(f"{name}.{attention}.out_proj", width, width)
                weights |= norm(f"{name}.{attention}_layer_norm", width)
            weights |= linear(f"{name}.fc1", inner, width)
            weights |= linear(f"{name}.fc2", width, inner)
            weights |= norm(f"{name}.final_layer_norm", width)
        if options[f"{side}_normalize_before"] and not (side == "decoder" and options["no_decoder_final_norm"]):
            weights |= norm(f"{side}.layer_norm", width)
    if shared:
        weights["encoder.embed_tokens.weight"] = weights["decoder.embed_tokens.weight"]
    if shared or options["share_decoder_input_output_embed"]:
        weights["decoder.output_projection.weight"] = weights["decoder.embed_tokens.weight"]
    else:
        weights["decoder.output_projection.weight"] = matrix(target_rows, options["decoder_embed_dim"], 3.0)
    return weights


def write_dictionary(path: Path, words: list[str]) -> None:
    path.write_text("".join(f"{word} {1000 - number}\n" for number, word in enumerate(words)), encoding="utf-8")


def write_checkpoint(
    folder: Path,
    options: dict | None = None,
    weights: dict[str, torch.Tensor] | None = None,
    style: str = "cfg",
    name: str = "model.pt",
    extra: dict | None = None,
) -> Path:
    """A checkpoint and its dictionaries.

    Args:
        folder: Where.
        options: Those that are not as in OPTIONS.
        weights: If not random ones.
        style: args (until fairseq 0.10), cfg (since, with a Namespace for the model), plain (dictionaries only).
        name: Of the file.
        extra: Further entries of the checkpoint.
    """
    folder.mkdir(parents=True, exist_ok=True)
    options = OPTIONS | (options or {})
    weights = make_weights(options) if weights is None else weights
    source, target = options["source_lang"] or "xx", options["target_lang"] or "yy"
    write_dictionary(folder / f"dict.{source}.txt", TARGET_WORDS if options["share_all_embeddings"] else SOURCE_WORDS)
    write_dictionary(folder / f"dict.{target}.txt", TARGET_WORDS)
    state = {"model": weights, "optimizer_history": [{"criterion_name": "x", "best_loss": 1.5}], **(extra or {})}
    if style == "args":
        state["args"] = Namespace(**options)
    else:
        task = {key: options[key] for key in ("source_lang", "target_lang", "data")}
        model = {
            key: value for key, value in options.items() if key not in ("source_lang", "target_lang", "data", "task")
        }
        state["args"] = None
        state["cfg"] = {
            "common": {"seed": 1},
            "task": {"_name": options["task"], **task},
            "model": Namespace(**model) if style == "cfg" else {"_name": model.pop("arch"), **model},
            "bpe": None,
            "tokenizer": None,
        }
    torch.save(state, folder / name)
    return folder / name


class Reference:
    """The architecture as it is written down: one sentence at a time, no padding, no cache, float64."""

    def __init__(self, weights: dict[str, torch.Tensor], options: dict | None = None) -> None:
        self.options = OPTIONS | (options or {})
        self.weights = {name: tensor.double() for name, tensor in weights.items()}

    def log_probs(self, source: list[int], inputs: list[int]) -> torch.Tensor:
        """log p after each of the decoder's inputs, (inputs, vocabulary)."""
        return torch.log_softmax(self.decode(source, inputs)[0] @ self._projection().T, dim=-1)

    def keys(self, source: list[int], inputs: list[int]) -> torch.Tensor:
        """What the last feed-forward block reads, (inputs, width)."""
        return self.decode(source, inputs)[1]

    def greedy(self, source: list[int], prefix: list[int], steps: int) -> list[int]:
        """The most probable token at each step; never padding, and no end at once."""
        tokens = list(prefix)
        while len(tokens) < len(prefix) + steps and (len(tokens) == len(prefix) or tokens[-1] != EOS):
            scores = self.log_probs(source, tokens)[-1]
            scores[1] = -math.inf
            if len(tokens) == len(prefix):
                scores[EOS] = -math.inf
            tokens.append(int(scores.argmax()))
        return tokens[len(prefix) :]

    def decode(self, source: list[int], inputs: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        x, key = self._embed("encoder", source), None
        for layer in range(self.options["encoder_layers"]):
            x, _ = self._layer("encoder", layer, x, None)
        encoded = self._norm("encoder.layer_norm", x) if "encoder.layer_norm.weight" in self.weights else x
        x = self._embed("decoder", inputs)
        for layer in range(self.options["decoder_layers"]):
            x, key = self._layer("decoder", layer, x, encoded)
        return (self._norm("decoder.layer_norm", x) if "decoder.layer_norm.weight" in self.weights else x), key

    def _projection(self) -> torch.Tensor:
        shared = self.options["share_all_embeddings"] or self.options["share_decoder_input_output_embed"]
        return self.weights["decoder.embed_tokens.weight" if shared else "decoder.output_projection.weight"]

    def _embed(self, side: str, tokens: list[int]) -> torch.Tensor:
        table = self.weights[f"{side}.embed_tokens.weight"]
        width = table.shape[1]
        rows = []
        for place, token in enumerate(tokens):
            row = table[token] * (1.0 if self.options["no_scale_embedding"] else width**0.5)
            if not self.options["no_token_positional_embeddings"]:
                if self.options[f"{side}_learned_pos"]:
                    row = row + self.weights[f"{side}.embed_positions.weight"][place + 2]
                else:
                    half = width // 2
                    angles = (place + 2) * 10000.0 ** (-torch.arange(half).double() / (half - 1))
                    row = row + torch.cat([angles.sin(), angles.cos()])
            rows.append(row)
        x = torch.stack(rows)
        return self._norm(f"{side}.layernorm_embedding", x) if self.options["layernorm_embedding"] else x

    def _layer(self, side: str, layer: int, x: torch.Tensor, encoded: torch.Tensor | None):
        before, name = self.options[f"{side}_normalize_before"], f"{side}.layers.{layer}"

        def block(x, norm, compute):
            read = self._norm(f"{name}.{norm}", x) if before else x
            x = x + compute(read)
            return x if before else self._norm(f"{name}.{norm}", x)

        heads = self.options[f"{side}_attention_heads"]
        causal = side == "decoder"
        x = block(x, "self_attn_layer_norm", lambda read: self._attend(f"{name}.self_attn", read, read, heads, causal))
        if encoded is not None:
            x = block(
                x, "encoder_attn_layer_norm", lambda read: self._attend(f"{name}.encoder_attn", read, encoded, heads)
            )
        key = self._norm(f"{name}.final_layer_norm", x) if before else x
        activate = {"relu": torch.relu, "gelu": lambda v: v * 0.5 * (1 + torch.erf(v / 2**0.5))}[
            self.options["activation_fn"]
        ]
        x = block(
            x, "final_layer_norm", lambda read: self._linear(f"{name}.fc2", activate(self._linear(f"{name}.fc1", read)))
        )
        return x, key

    def _attend(self, name, x, y, heads, causal=False):
        q, k, v = (self._linear(f"{name}.{part}_proj", of) for part, of in (("q", x), ("k", y), ("v", y)))
        parts = []
        for head in torch.arange(q.shape[1]).chunk(heads):
            scores = q[:, head] @ k[:, head].T / len(head) ** 0.5
            if causal:
                scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -math.inf)
            parts.append(torch.softmax(scores, dim=-1) @ v[:, head])
        return self._linear(f"{name}.out_proj", torch.cat(parts, dim=1))

    def _linear(self, name, x):
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def _norm(self, name, x):
        centred = x - x.mean(-1, keepdim=True)
        scaled = centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()
        return scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]


def write_tokens(prefix: Path, sentences: list[list[int]], kind: str = "<u2", code: int = 8) -> None:
    """One side of a split as `fairseq-preprocess --dataset-impl mmap` writes it."""
    sizes = [len(sentence) for sentence in sentences]
    starts = np.cumsum([0, *sizes])[:-1] * np.dtype(kind).itemsize if sizes else np.zeros(0)
    Path(f"{prefix}.bin").write_bytes(np.array([t for s in sentences for t in s], dtype=kind).tobytes())
    Path(f"{prefix}.idx").write_bytes(
        b"MMIDIDX\x00\x00"
        + struct.pack("<QBQ", 1, code, len(sizes))
        + np.array(sizes, dtype="<i4").tobytes()
        + np.array(starts, dtype="<i8").tobytes()
    )


def write_cached_tokens(prefix: Path, sentences: list[list[int]]) -> None:
    """The same as `--dataset-impl cached` writes it: int32, and every number one larger."""
    sizes = [len(sentence) for sentence in sentences]
    Path(f"{prefix}.bin").write_bytes(np.array([t + 1 for s in sentences for t in s], dtype="<i4").tobytes())
    Path(f"{prefix}.idx").write_bytes(
        b"TNTIDX\x00\x00"
        + struct.pack("<QQQQQ", 1, 4, 4, len(sizes), len(sizes))
        + np.arange(len(sizes) + 1, dtype="<i8").tobytes()
        + np.cumsum([0, *sizes]).astype("<i8").tobytes()
        + np.array(sizes, dtype="<i8").tobytes()
    )


def write_data_bin(folder: Path, pairs: list[tuple[list[int], list[int]]], subset: str = "train") -> Path:
    """A data-bin folder of the languages xx and yy."""
    folder.mkdir(parents=True, exist_ok=True)
    write_dictionary(folder / "dict.xx.txt", SOURCE_WORDS)
    write_dictionary(folder / "dict.yy.txt", TARGET_WORDS)
    for side, language in enumerate(("xx", "yy")):
        write_tokens(folder / f"{subset}.xx-yy.{language}", [pair[side] for pair in pairs])
    return folder


def words(pair: tuple[list[int], list[int]]) -> tuple[str, str]:
    """The text of both sides of a pair of tokens."""
    source, target = (
        " ".join(f"{name}{token - 4}" for token in side[:-1]) for name, side in zip("st", pair, strict=True)
    )
    return source, target
