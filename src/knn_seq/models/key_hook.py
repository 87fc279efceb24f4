"""Where in a network the key is, and how it is taken out while the network runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from knn_seq.errors import InvalidSetting

# What the feed-forward block of a decoder layer is called; "first > last" are the modules it begins and ends with.
FEED_FORWARD_NAMES = ("mlp", "ffn", "feed_forward", "DenseReluDense", "block_sparse_moe", "fc1 > fc2")


class KeyFound(Exception):
    """Ends a forward pass once the key is known: what comes behind it is not needed."""


class KeyHook:
    """Takes the keys out of a forward pass.

    Args:
        network: The complete network.
        decoder: The part whose last layer holds the key.
        key: `ffn_in`, `ffn_out`, or a module's path in the network (its input, or with ":output" behind, its output).
        time_major: The network runs (time, batch, dimension).
    """

    def __init__(self, network: nn.Module, decoder: nn.Module, key: str, time_major: bool = False) -> None:
        self._module, self._output = _find_module(network, decoder, key)
        self._time_major = time_major
        self._captured: Tensor | None = None

    @contextmanager
    def attached(self, stop: bool = False) -> Iterator[KeyHook]:
        """While inside, every forward pass leaves its keys here; with `stop` it ends there by raising `KeyFound`."""

        def take(tensor: Any) -> None:
            self._captured = tensor[0] if isinstance(tensor, tuple) else tensor
            if stop:
                raise KeyFound

        if self._output:
            handle = self._module.register_forward_hook(lambda module, inputs, output: take(output))
        else:
            handle = self._module.register_forward_pre_hook(
                lambda module, inputs, named: take(inputs if inputs else next(iter(named.values()))), with_kwargs=True
            )
        try:
            yield self
        finally:
            handle.remove()
            self._captured = None

    def states(self, batch: int) -> Tensor:
        """The keys of the last forward pass, (batch, time, dimension)."""
        assert self._captured is not None, "no forward pass reached the key's module"
        if self._captured.dim() == 2:  # some networks flatten batch and time before the feed-forward block
            return self._captured.view(batch, -1, self._captured.shape[-1])
        return self._captured.transpose(0, 1) if self._time_major else self._captured


def _find_module(network: nn.Module, decoder: nn.Module, key: str) -> tuple[nn.Module, bool]:
    """The module, and whether its output is the key (else its input)."""
    if key not in ("ffn_in", "ffn_out"):
        path, _, end = key.partition(":")
        paths = dict(network.named_modules())
        if path not in paths or end not in ("", "input", "output"):
            raise InvalidSetting(
                f"The key '{key}' is neither ffn_in nor ffn_out nor the path of a module of {type(network).__name__}; "
                f"the path of the last decoder layer is '{_path_of(network, _last_layer(decoder))}'."
            )
        return paths[path], end == "output"
    layer = _last_layer(decoder)
    modules: dict[str, nn.Module] = {}
    for path, module in layer.named_modules():
        modules.setdefault(path.rsplit(".", 1)[-1], module)
    for name in FEED_FORWARD_NAMES:
        first, _, last = name.partition(" > ")
        if first in modules:
            return (modules[last or first], True) if key == "ffn_out" else (modules[first], False)
    raise InvalidSetting(
        f"The feed-forward block of {type(layer).__name__} was not found: give the key as the path of a module "
        f"below '{_path_of(network, layer)}'."
    )


def _last_layer(decoder: nn.Module) -> nn.Module:
    stacks = [module for module in decoder.modules() if isinstance(module, nn.ModuleList) and len(module)]
    if not stacks:
        raise InvalidSetting(f"{type(decoder).__name__} has no list of layers: give the key as the path of a module.")
    return stacks[0][-1]


def _path_of(network: nn.Module, wanted: nn.Module) -> str:
    paths: dict[nn.Module, str] = {module: path for path, module in network.named_modules()}
    return paths[wanted]
