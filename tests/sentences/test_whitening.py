from __future__ import annotations

import numpy as np
import pytest
import torch

from knn_seq.errors import DamagedFile
from knn_seq.sentences.whitening import Whitening


def lopsided(count, dimension=12):
    """Vectors that vary much in some directions, around a mean far from the origin."""
    generator = np.random.default_rng(2)
    scales = np.geomspace(10, 0.1, dimension)
    turned = np.linalg.qr(generator.standard_normal((dimension, dimension)))[0]
    return ((generator.standard_normal((count, dimension)) * scales) @ turned + 5).astype(np.float32)


def test_whitened_vectors_vary_alike_in_all_directions():
    vectors = lopsided(20_000)
    whitening = Whitening.fit(vectors)
    white = (torch.from_numpy(vectors) - whitening.mean) @ whitening.matrix
    torch.testing.assert_close(white.mean(dim=0), torch.zeros(12), atol=1e-3, rtol=0)
    # But for the few in which they hardly vary at all.
    torch.testing.assert_close(white.T.cov(correction=0)[-6:, -6:], torch.eye(6), atol=0.02, rtol=0)
    norms = whitening.apply(torch.from_numpy(vectors)).norm(dim=1)
    torch.testing.assert_close(norms, torch.ones(20_000))


@pytest.mark.parametrize("count", [1, 2, 5])
def test_few_vectors_give_finite_numbers(count):
    vectors = lopsided(count)
    whitening = Whitening.fit(vectors)
    assert whitening.matrix.isfinite().all()
    found = whitening.apply(torch.from_numpy(lopsided(50)))
    assert found.isfinite().all()


def test_it_is_saved(tmp_path):
    whitening = Whitening.fit(lopsided(100))
    whitening.save(tmp_path / "whitening.h5")
    loaded = Whitening.load(tmp_path / "whitening.h5")
    assert torch.equal(loaded.mean, whitening.mean)
    assert torch.equal(loaded.matrix, whitening.matrix)
    (tmp_path / "whitening.h5").write_bytes(b"nonsense")
    with pytest.raises(DamagedFile, match="damaged"):
        Whitening.load(tmp_path / "whitening.h5")


def test_none_leaves_unit_vectors_alone():
    vectors = torch.nn.functional.normalize(torch.from_numpy(lopsided(9)), dim=1)
    torch.testing.assert_close(Whitening.none(12).apply(vectors), vectors)
