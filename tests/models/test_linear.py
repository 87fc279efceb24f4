from __future__ import annotations

import pytest
import torch
from torch import nn

from knn_seq.models.linear import FEW_ROWS, WIDE, linear_for


@pytest.mark.parametrize("outputs", [24, WIDE + 3])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_is_the_layers_product(outputs, bias, dtype):
    torch.manual_seed(0)
    layer = nn.Linear(16, outputs, bias).to(dtype)
    linear = linear_for(layer, str(dtype).removeprefix("torch."))
    close = {"atol": 1e-5, "rtol": 1e-5} if dtype == torch.float32 else {"atol": 2e-2, "rtol": 2e-2}
    for rows in (5, 1, 2, FEW_ROWS, FEW_ROWS + 1, 40, 3, 0):
        x = torch.randn(rows, 16).to(dtype)
        product = linear(x)
        assert product.is_contiguous()
        torch.testing.assert_close(product.float(), layer(x).detach().float(), **close)
