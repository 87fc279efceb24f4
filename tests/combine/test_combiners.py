from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from knn_seq.combine import COMBINERS, CombinerInputs, mix_tokens, mix_vocabulary
from knn_seq.decoding.step import combiner_inputs
from knn_seq.index import Neighbours
from knn_seq.settings import SearchSettings

VOCABULARY = 7


@st.composite
def cases(draw):
    rows, k = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    distances, values, ids, all_found = [], [], [], draw(st.booleans())
    for _ in range(rows):
        found = k if all_found else draw(st.integers(0, k))
        distances.append(
            sorted(draw(st.lists(st.floats(-100, 500), min_size=found, max_size=found))) + [math.inf] * (k - found)
        )
        values.append(
            draw(st.lists(st.integers(0, VOCABULARY - 1), min_size=found, max_size=found)) + [0] * (k - found)
        )
        ids.append(list(range(found)) + [-1] * (k - found))
    numbers = torch.tensor(ids)
    complete = bool((numbers >= 0).all()) and draw(st.booleans())  # nobody has to say so
    counts = torch.tensor(draw(st.lists(st.integers(1, 40), min_size=rows * k, max_size=rows * k))).view(rows, k)
    counts = counts.masked_fill(numbers < 0, 1) if draw(st.booleans()) else None
    neighbours = Neighbours(torch.tensor(distances), torch.tensor(values), numbers, complete, counts)
    logits = draw(
        st.lists(st.lists(st.floats(-9, 9), min_size=VOCABULARY, max_size=VOCABULARY), min_size=rows, max_size=rows)
    )
    temperature = draw(st.floats(0.5, 200))
    weight = draw(st.sampled_from([0.0, 0.1, 0.5, 0.99, 1.0]))
    return torch.log_softmax(torch.tensor(logits), dim=-1), neighbours, temperature, weight


def mixed(name, log_probs, neighbours, **settings):
    """log p of the vocabulary, as decoding computes it."""
    combiner = COMBINERS.get(name)()
    inputs = combiner_inputs(combiner.best_log_probs, torch.zeros(len(log_probs), 3), neighbours, log_probs)
    return mix_vocabulary(log_probs.clone(), neighbours, combiner.combine(inputs, SearchSettings(**settings)))


def slow_weight(combiner, weight, nearest, temperature):
    return weight if combiner == "fixed" else weight * min(1.0, max(0.0, 1 - nearest / temperature))


def slow_mixture(combiner, log_probs, neighbours, row, temperature, weight):
    """p of one row's vocabulary, token by token in float64."""
    p_mt = log_probs[row].double().exp().numpy()
    found = [i for i, entry in enumerate(neighbours.ids[row].tolist()) if entry >= 0]
    if not found:
        return p_mt
    distances = neighbours.distances[row].double().numpy()
    counts = [1] * len(distances) if neighbours.counts is None else neighbours.counts[row].tolist()
    kernel = {i: counts[i] * math.exp(-(distances[i] - distances[found[0]]) / temperature) for i in found}
    p_knn = np.zeros(VOCABULARY)
    for i in found:
        p_knn[neighbours.values[row, i]] += kernel[i] / sum(kernel.values())
    own = slow_weight(combiner, weight, distances[found[0]], temperature)
    return own * p_knn + (1 - own) * p_mt


@pytest.mark.parametrize("combiner", ["fixed", "distance"])
@given(case=cases())
def test_the_mixture_is_what_the_formula_says(combiner, case):
    log_probs, neighbours, temperature, weight = case
    got = mixed(combiner, log_probs, neighbours, temperature=temperature, weight=weight).exp().numpy()
    for row in range(len(got)):
        wanted = slow_mixture(combiner, log_probs, neighbours, row, temperature, weight)
        np.testing.assert_allclose(got[row], wanted, atol=1e-6)


@pytest.mark.parametrize("combiner", ["fixed", "distance"])
@given(case=cases(), token=st.integers(0, VOCABULARY - 1))
def test_a_token_has_the_probability_that_it_has_in_the_vocabulary(combiner, case, token):
    log_probs, neighbours, temperature, weight = case
    settings = SearchSettings(temperature=temperature, weight=weight)
    opened = COMBINERS.get(combiner)()
    inputs = combiner_inputs(opened.best_log_probs, torch.zeros(len(log_probs), 3), neighbours, log_probs)
    tokens = torch.full((len(log_probs),), token)
    got = mix_tokens(tokens, log_probs[:, token].double(), neighbours, opened.combine(inputs, settings))
    for row, value in enumerate(got.exp().tolist()):
        wanted = slow_mixture(combiner, log_probs, neighbours, row, temperature, weight)
        assert value == pytest.approx(wanted[token], abs=1e-6)


@pytest.mark.parametrize("combiner", ["fixed", "distance"])
@given(case=cases())
def test_the_mixture_sums_to_one(combiner, case):
    log_probs, neighbours, temperature, weight = case
    got = mixed(combiner, log_probs, neighbours, temperature=temperature, weight=weight)
    assert not got.isnan().any()
    np.testing.assert_allclose(got.exp().sum(dim=1), 1.0, atol=1e-5)


@pytest.mark.parametrize("combiner", ["fixed", "distance"])
def test_rows_without_neighbours_stay_as_they_are(combiner):
    log_probs = torch.log_softmax(torch.randn(2, VOCABULARY), dim=-1)
    assert torch.equal(mixed(combiner, log_probs, Neighbours.none(2, 4), weight=0.9), log_probs)


@pytest.mark.parametrize("values", [[1, 1, 1], [3, 1, 3], [0, 1, 2]])
def test_probabilities_of_the_same_value_are_added(values):
    distances = torch.tensor([[0.0, 1.0, 2.0]])
    neighbours = Neighbours(distances, torch.tensor([values]), torch.arange(3).view(1, 3))
    softmax = torch.softmax(-distances, dim=1)[0].tolist()
    log_probs = torch.full((1, VOCABULARY), -math.log(VOCABULARY))
    got = mixed("fixed", log_probs, neighbours, temperature=1.0, weight=0.5)
    for value in range(VOCABULARY):
        p_knn = sum(part for part, its in zip(softmax, values, strict=True) if its == value)
        assert got[0, value].exp().item() == pytest.approx(0.5 * p_knn + 0.5 / VOCABULARY)


@pytest.mark.parametrize("combiner", ["fixed", "distance"])
def test_a_weight_of_one_leaves_the_other_tokens_possible(combiner):
    """The search may ban every token that neighbours propose: the model's own then decide."""
    log_probs = torch.log_softmax(torch.randn(1, VOCABULARY), dim=-1)
    neighbours = Neighbours(torch.tensor([[0.0, 3.0]]), torch.tensor([[1, 1]]), torch.tensor([[8, 9]]))
    got = mixed(combiner, log_probs, neighbours, weight=1.0)
    assert got.isfinite().all()
    assert got[0, 1].exp() == pytest.approx(1.0, abs=1e-6)
    got[0, 1] = log_probs[0, 1] = -torch.inf
    np.testing.assert_allclose(torch.softmax(got, dim=1), torch.softmax(log_probs, dim=1), atol=1e-5)


def test_the_weight_falls_with_the_distance_of_the_nearest():
    distances = torch.tensor([[0.0, 9.0], [25.0, 30.0], [100.0, 101.0], [400.0, 401.0], [-50.0, 3.0]])
    neighbours = Neighbours(distances, torch.zeros(5, 2, dtype=torch.int64), torch.arange(10).view(5, 2))
    inputs = CombinerInputs(torch.zeros(5, 3), neighbours, torch.zeros(5, 2), torch.zeros(5, 0))
    got = COMBINERS.get("distance")().combine(inputs, SearchSettings(temperature=100.0, weight=0.8))
    assert got.row_weights().tolist() == pytest.approx([0.8, 0.6, 0.0, 0.0, 0.8])


def test_the_interpolation_weight_is_a_factor_of_lambda():
    distances = torch.tensor([[1.0, 2.0], [50.0, 90.0]])
    neighbours = Neighbours(distances, torch.tensor([[1, 2], [2, 2]]), torch.arange(4).view(2, 2))
    inputs = CombinerInputs(torch.zeros(2, 3), neighbours, torch.zeros(2, 2), torch.zeros(2, 0))
    for name in ("fixed", "distance"):
        combiner = COMBINERS.get(name)()
        full, third = (combiner.combine(inputs, SearchSettings(weight=weight)) for weight in (1.0, 0.3))
        torch.testing.assert_close(0.3 * full.row_weights(), third.row_weights())
        assert torch.equal(full.probabilities, third.probabilities)
