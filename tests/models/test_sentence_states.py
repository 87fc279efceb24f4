"""What the encoder read for a sentence's vector is not read again to translate it."""

from __future__ import annotations

import pytest
import torch
from tiny_models import DECODER_ONLY, NETWORKS, make_model

from knn_seq.models import TokenPair
from knn_seq.models.fused import FusedEncoder
from knn_seq.settings import DecodingSettings

SOURCES = [[5, 9, 14, 2], [7, 2], [30, 31, 32, 33, 34, 2]]


@pytest.mark.parametrize("kind", sorted(set(NETWORKS) - DECODER_ONLY))
def test_states_are_used_once_and_change_nothing(kind, monkeypatch):
    model = make_model(kind)
    decoding = DecodingSettings(beam_size=3, max_length=12, nbest=2)
    plain = model.generate(SOURCES, decoding)
    runs, encode = [], FusedEncoder.__call__
    handle = model.network.get_encoder().register_forward_hook(lambda *_: runs.append(1))
    monkeypatch.setattr(FusedEncoder, "__call__", lambda *given: runs.append(1) or encode(*given))
    model.sentence_vectors(SOURCES)
    assert model.generate(SOURCES, decoding) == plain
    assert len(runs) == 1
    assert model.generate(SOURCES, decoding) == plain
    handle.remove()
    assert len(runs) == 2


@pytest.mark.parametrize("kind", sorted(NETWORKS))
def test_keys_and_scores_are_the_same_after_vectors(kind):
    model = make_model(kind)
    pairs = [TokenPair(source, [8, 9, 10, 11, 2][i:]) for i, source in enumerate(SOURCES)]
    keys, log_probs = model.keys(pairs), model.score(pairs).log_probs
    model.sentence_vectors(SOURCES)
    torch.testing.assert_close(model.keys(pairs), keys)
    model.sentence_vectors(SOURCES)
    torch.testing.assert_close(model.score(pairs).log_probs, log_probs)


def test_states_of_another_batch_are_not_used():
    model = make_model("marian")
    decoding = DecodingSettings(beam_size=1, max_length=12)
    plain = model.generate(SOURCES[:2], decoding)
    model.sentence_vectors(SOURCES[1:])
    assert model.generate(SOURCES[:2], decoding) == plain


@pytest.mark.parametrize("kind", sorted(NETWORKS))
def test_vectors_are_finite_and_differ(kind):
    vectors = make_model(kind).sentence_vectors(SOURCES)
    assert vectors.dtype == torch.float32
    assert vectors.isfinite().all()
    assert (vectors[0] - vectors[1]).abs().max() > 1e-3
