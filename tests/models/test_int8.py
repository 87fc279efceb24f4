"""Linear layers of 8 bits against slow references, and networks made of them against their float32 selves."""

from __future__ import annotations

from unittest.mock import patch

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import DECODER_ONLY, NETWORKS, make_model, make_network, number_pairs
from torch import nn

from knn_seq.errors import InvalidSetting
from knn_seq.models import TokenPair
from knn_seq.models import int8 as int8_module
from knn_seq.models.int8 import BLOCK, LEVELS, Int8Linear, Int8Weight, quantize_linears
from knn_seq.models.linear import linear_for
from knn_seq.settings import DecodingSettings, ModelSettings

KERNELS = {
    "packed": int8_module._kernel(),
    "plain": int8_module._Kernel(False, int8_module._kernel().multiplies, int8_module._kernel().levels),
    "float": int8_module._Kernel(False, False, LEVELS),
}


def slow_linear(x, weight, bias, levels):
    """Each number by itself, in float64."""
    rows = x.reshape(-1, x.shape[-1]).double()
    smallest, largest = rows.amin(dim=1, keepdim=True), rows.amax(dim=1, keepdim=True)
    middle, scales = (smallest + largest) / 2, (largest - smallest) / 2 / levels
    rounded = torch.where(scales > 0, ((rows - middle) / scales).round(), 0.0)
    y = (rounded * scales + middle) @ (weight.values.double() * weight.scales.double()[:, None]).T
    return (y + (0 if bias is None else bias.double())).view(*x.shape[:-1], -1)


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 40),
    inputs=st.integers(1, 70),
    outputs=st.integers(1, 70),
    biased=st.booleans(),
    kernel=st.sampled_from(sorted(KERNELS)),
    seed=st.integers(0, 1000),
)
def test_the_layer_is_what_a_slow_reference_computes(rows, inputs, outputs, biased, kernel, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, inputs, generator=generator) * 10 ** torch.randn(rows, 1, generator=generator)
    weight = Int8Weight.of(torch.randn(outputs, inputs, generator=generator))
    bias = torch.randn(outputs, generator=generator) if biased else None
    with patch.object(int8_module, "_kernel", lambda: KERNELS[kernel]):
        computed = Int8Linear(weight, bias)(x)
    expected = slow_linear(x, weight, bias, KERNELS[kernel].levels).float()
    # A number half-way between two levels may be rounded either way: a level of one activation is the tolerance.
    size = x.abs().amax(dim=1, keepdim=True) * weight.scales * LEVELS
    assert ((computed - expected).abs() <= 1.01 * size / KERNELS[kernel].levels + 1e-5).all()
    assert ((computed - expected).abs() > 1e-4 * (size + 1)).float().mean() < 0.2


@pytest.mark.parametrize("kernel", sorted(KERNELS))
def test_a_row_of_equal_numbers_is_exact(kernel):
    x = torch.zeros(3, 8)
    x[1] = -2.5
    weight, bias = Int8Weight.of(torch.randn(5, 8)), torch.arange(5.0)
    with patch.object(int8_module, "_kernel", lambda: KERNELS[kernel]):
        layer = Int8Linear(weight, bias)
        torch.testing.assert_close(layer(x), F.linear(x, weight.float(), bias))
        rows, outputs = torch.tensor([0, 1]), torch.tensor([4, 2])
        torch.testing.assert_close(layer.outputs_of(x, rows, outputs), layer(x)[rows, outputs])


@pytest.mark.parametrize("kernel", sorted(KERNELS))
def test_multiplying_what_is_left_over_comes_a_hundred_times_nearer(kernel):
    weight, x = Int8Weight.of(torch.randn(30, 64)), torch.randn(20, 64)
    with patch.object(int8_module, "_kernel", lambda: KERNELS[kernel]):
        once, twice = Int8Linear(weight, None)(x), Int8Linear(weight, None, twice=True)(x)
    exact = F.linear(x, weight.float())
    assert (twice - exact).abs().max() < (once - exact).abs().max() / 100


def test_rows_do_not_depend_on_the_rows_beside_them():
    layer = Int8Linear(Int8Weight.of(torch.randn(96, 64)), torch.randn(96))
    x = torch.randn(50, 64) * torch.logspace(-3, 3, 50)[:, None]
    together = layer(x)
    for row in range(50):
        assert torch.equal(layer(x[row : row + 1])[0], together[row])


def test_a_matrix_that_was_quantized_before_is_recovered_exactly():
    values = torch.randint(-127, 128, (20, 30), dtype=torch.int8)
    scales = torch.rand(20) + 0.01
    recovered = Int8Weight.of(values.float() * scales[:, None], scales)
    assert torch.equal(recovered.values, values)


@pytest.mark.parametrize("kernel", sorted(KERNELS))
def test_some_outputs_are_those_of_the_complete_layer(kernel):
    with patch.object(int8_module, "_kernel", lambda: KERNELS[kernel]):
        layer = Int8Linear(Int8Weight.of(torch.randn(40, 16)), torch.randn(40))
        x, ids = torch.randn(7, 16), torch.tensor([0, 3, 4, 39])
        torch.testing.assert_close(layer.limited(ids)(x), layer(x)[:, ids], atol=1e-4, rtol=1e-4)
        rows, outputs = torch.tensor([6, 0, 6]), torch.tensor([39, 2, 0])
        few = layer.outputs_of(x, rows, outputs)
        torch.testing.assert_close(few, layer(x)[rows, outputs], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("biased", [True, False])
def test_blocks_of_outputs_are_those_of_layers_of_their_own(biased):
    outputs = 2 * BLOCK + 5
    weight, bias = Int8Weight.of(torch.randn(outputs, 16)), torch.randn(outputs) if biased else None
    layer, x = Int8Linear(weight, bias), torch.randn(3, 2, 16)
    expected = [
        Int8Linear(weight.rows(ids), None if bias is None else bias[ids])(x) for ids in torch.arange(outputs).split(100)
    ]
    assert torch.equal(layer(x), torch.cat(expected, dim=2))
    wide = linear_for(layer, "int8")
    for rows in (6, 1, 4):  # in the same memory
        assert torch.equal(wide(x.view(6, 16)[:rows]), layer(x).view(6, -1)[:rows])


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_linear_for(dtype):
    layer, x = nn.Linear(32, 24), torch.randn(6, 32)
    ids = torch.tensor([1, 5, 23])
    complete = linear_for(layer, dtype)(x)
    assert (complete - layer(x)).abs().max() < (1e-6 if dtype == "float32" else 0.05)
    torch.testing.assert_close(linear_for(layer, dtype, ids)(x), complete[:, ids], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", NETWORKS)
def test_every_linear_layer_of_a_network_is_replaced(kind):
    network = make_network(kind)
    quantize_linears(network)
    left = [path for path, module in network.named_modules() if isinstance(module, nn.Linear)]
    assert not left
    assert any(isinstance(module, Int8Linear) for module in network.modules())


@pytest.mark.parametrize("kind", NETWORKS)
def test_a_network_of_8_bits_is_near_the_one_of_float32(kind):
    exact, rounded = make_model(kind), make_model(kind, dtype="int8")
    assert exact.fingerprint == rounded.fingerprint
    pairs = [TokenPair(*pair) for pair in number_pairs()]
    one, other = exact.score(pairs), rounded.score(pairs)
    assert F.cosine_similarity(one.keys, other.keys).min() > 0.98
    torch.testing.assert_close(rounded.keys(pairs), other.keys, atol=1e-4, rtol=1e-4)
    agreement = (one.log_probs.argmax(dim=1) == other.log_probs.argmax(dim=1)).float().mean()
    assert agreement > 0.9


@pytest.mark.parametrize("kind", ["marian", *sorted(DECODER_ONLY)])
def test_a_batch_translates_as_its_sentences_do(kind):
    model = make_model(kind, dtype="int8")
    sources = [source for source, _ in number_pairs(16)]
    decoding = DecodingSettings(beam_size=1, max_length=12)
    together = model.generate(sources, decoding)
    alone = [model.generate([source], decoding)[0] for source in sources]
    assert [output[0].tokens for output in together] == [output[0].tokens for output in alone]


def test_it_is_refused_on_other_devices():
    with patch("knn_seq.models.network._device", lambda name: torch.device("cuda")), pytest.raises(InvalidSetting) as e:
        make_model("marian", dtype="int8")
    assert "int8 is for CPUs" in str(e.value)


def test_the_settings_name_it():
    with pytest.raises(InvalidSetting, match="int8"):
        make_model("marian", dtype="int4")
    assert ModelSettings("x", dtype="int8").dtype == "int8"
