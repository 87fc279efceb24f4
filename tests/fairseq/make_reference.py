"""Writes reference.json: what real fairseq computes for tiny models with weights from a seed.

Run it in an environment that has fairseq: `.venv-fairseq/bin/python tests/fairseq/make_reference.py`.
"""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import fairseq
import numpy as np
import torch
from fairseq.data import Dictionary
from fairseq.models.transformer import TransformerModel, base_architecture
from seeded_weights import seeded_weights

SMALL = {
    "encoder_embed_dim": 8,
    "encoder_ffn_embed_dim": 12,
    "encoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_embed_dim": 8,
    "decoder_ffn_embed_dim": 16,
    "decoder_layers": 2,
    "decoder_attention_heads": 4,
    "max_source_positions": 24,
    "max_target_positions": 20,
}
ARCHITECTURES = {
    "post-norm, sinusoidal, all embeddings shared": {"share_all_embeddings": True},
    "pre-norm, learned, separate embeddings": {
        "encoder_normalize_before": True,
        "decoder_normalize_before": True,
        "encoder_learned_pos": True,
        "decoder_learned_pos": True,
    },
    "post-norm, sinusoidal, shared decoder embeddings, gelu": {
        "share_decoder_input_output_embed": True,
        "activation_fn": "gelu",
    },
    "pre-norm, sinusoidal, unscaled, normalized embeddings": {
        "encoder_normalize_before": True,
        "decoder_normalize_before": True,
        "share_decoder_input_output_embed": True,
        "no_scale_embedding": True,
        "layernorm_embedding": True,
    },
    "encoder and decoder of different depth": {"encoder_layers": 3, "decoder_layers": 1, "share_all_embeddings": True},
}
SOURCES = [[4, 9, 5, 12, 2], [7, 2], [13, 13, 6, 10, 11, 8, 4, 5, 3, 2]]
TARGETS = [[5, 6, 14, 2], [8, 4, 4, 9, 12, 2], [10, 2]]


def dictionary(words: int) -> Dictionary:
    made = Dictionary()
    for number in range(words):
        made.add_symbol(f"w{number}")
    return made


def reference(options: dict[str, object], seed: int) -> dict[str, object]:
    """A model and what it computes."""
    shared = bool(options.get("share_all_embeddings"))
    sides = [dictionary(12), dictionary(12 if shared else 11)]
    chosen = Namespace(arch="transformer", **SMALL | options)
    base_architecture(chosen)
    task = SimpleNamespace(source_dictionary=sides[0], target_dictionary=sides[0] if shared else sides[1])
    model = TransformerModel.build_model(chosen, task).eval()
    state = model.state_dict()
    places: dict[int, str] = {}
    tied = {}
    for name, tensor in sorted(state.items()):
        if tensor.dim() > 1:
            first = places.setdefault(tensor.data_ptr(), name)
            if first != name:
                tied[name] = first
    fixed = ("version", "_float_tensor")  # fairseq's own marks, no weights
    shapes = {n: list(t.shape) for n, t in state.items() if n not in tied and not n.endswith(fixed)}
    # Without its versions fairseq takes a state for a very old one, which it computes differently.
    marks = {name: tensor for name, tensor in state.items() if name.endswith(fixed)}
    model.load_state_dict(seeded_weights(shapes, seed, tied) | marks)
    keys: list[torch.Tensor] = []
    model.decoder.layers[-1].fc1.register_forward_pre_hook(lambda module, inputs: keys.append(inputs[0]))
    outputs = []
    for source, target in zip(SOURCES, TARGETS, strict=True):
        with torch.no_grad():
            tokens, previous = torch.tensor([source]), torch.tensor([[2, *target[:-1]]])
            output = model(tokens, torch.tensor([len(source)]), previous)
            log_probs = model.get_normalized_probs(output, log_probs=True)[0].numpy()
        rounded = [np.round(array, 7).tolist() for array in (log_probs, keys[-1][:, 0].numpy())]
        outputs.append({"source": source, "target": target, "log_probs": rounded[0], "keys": rounded[1]})
    plain = {name: value for name, value in vars(chosen).items() if isinstance(value, bool | int | float | str)}
    return {
        "options": plain,
        "seed": seed,
        "symbols": [side.symbols[4:] for side in sides],
        "shapes": shapes,
        "tied": tied,
        "marks": {name: tensor.tolist() for name, tensor in marks.items()},
        "outputs": outputs,
    }


if __name__ == "__main__":
    models = {name: reference(options, seed) for seed, (name, options) in enumerate(ARCHITECTURES.items())}
    written = {"fairseq": fairseq.__version__, "torch": torch.__version__.partition("+")[0], "models": models}
    path = Path(__file__).with_name("reference.json")
    path.write_text(json.dumps(written, separators=(",", ":")) + "\n")
    print(f"{path}: {path.stat().st_size:,} bytes")
