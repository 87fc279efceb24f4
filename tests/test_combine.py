from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from knn_seq.combine import COMBINERS
from knn_seq.combine.distance import DistanceCombiner
from knn_seq.index.neighbours import Neighbours
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
    whole = bool((numbers >= 0).all()) and draw(st.booleans())  # nobody has to say so
    neighbours = Neighbours(torch.tensor(distances), torch.tensor(values), numbers, whole)
    logits = draw(
        st.lists(st.lists(st.floats(-9, 9), min_size=VOCABULARY, max_size=VOCABULARY), min_size=rows, max_size=rows)
    )
    temperature = draw(st.floats(0.5, 200))
    weight = draw(st.sampled_from([0.0, 0.1, 0.5, 0.99, 1.0]))
    return torch.log_softmax(torch.tensor(logits), dim=-1), neighbours, temperature, weight


def weight_of(combiner, weight, nearest, temperature):
    return weight if combiner == "fixed" else weight * min(1.0, max(0.0, 1 - nearest / temperature))


@pytest.mark.parametrize("combiner", ["fixed", "distance"])
@given(case=cases())
def test_the_mixture_is_what_the_formula_says(combiner, case):
    log_probs, neighbours, temperature, weight = case
    settings = SearchSettings(k=neighbours.ids.shape[1], temperature=temperature, weight=weight)
    got = COMBINERS.get(combiner)(settings).combine(log_probs.clone(), neighbours).exp().numpy()
    for row in range(len(got)):
        p_mt = log_probs[row].double().exp().numpy()
        found = [i for i, entry in enumerate(neighbours.ids[row].tolist()) if entry >= 0]
        if not found:
            np.testing.assert_allclose(got[row], p_mt, atol=1e-6)
            continue
        distances = neighbours.distances[row].double().numpy()
        votes = {i: math.exp(-(distances[i] - distances[found[0]]) / temperature) for i in found}
        p_knn = np.zeros(VOCABULARY)
        for i in found:
            p_knn[neighbours.values[row, i]] += votes[i] / sum(votes.values())
        share = weight_of(combiner, weight, distances[found[0]], temperature)
        np.testing.assert_allclose(got[row], share * p_knn + (1 - share) * p_mt, atol=1e-6)


@pytest.mark.parametrize("combiner", ["fixed", "distance"])
@given(case=cases())
def test_the_mixture_sums_to_one(combiner, case):
    log_probs, neighbours, temperature, weight = case
    settings = SearchSettings(k=1, temperature=temperature, weight=weight)
    mixed = COMBINERS.get(combiner)(settings).combine(log_probs.clone(), neighbours)
    assert not mixed.isnan().any()
    np.testing.assert_allclose(mixed.exp().sum(dim=1), 1.0, atol=1e-5)


@pytest.mark.parametrize("combiner", ["fixed", "distance"])
def test_rows_without_neighbours_stay_as_they_are(combiner):
    log_probs = torch.log_softmax(torch.randn(2, VOCABULARY), dim=-1)
    mixed = COMBINERS.get(combiner)(SearchSettings(weight=0.9)).combine(log_probs.clone(), Neighbours.none(2, 4))
    assert torch.equal(mixed, log_probs)


@pytest.mark.parametrize("values", [[1, 1, 1], [3, 1, 3], [0, 1, 2]])
def test_votes_for_the_same_value_are_added(values):
    distances = torch.tensor([[0.0, 1.0, 2.0]])
    neighbours = Neighbours(distances, torch.tensor([values]), torch.arange(3).view(1, 3))
    votes = torch.softmax(-distances, dim=1)[0].tolist()
    log_probs = torch.full((1, VOCABULARY), -torch.log(torch.tensor(float(VOCABULARY))))
    got = COMBINERS.get("fixed")(SearchSettings(temperature=1.0, weight=0.5)).combine(log_probs, neighbours)
    for value in range(VOCABULARY):
        shared = sum(vote for vote, its in zip(votes, values, strict=True) if its == value)
        assert got[0, value].exp().item() == pytest.approx(0.5 * shared + 0.5 / VOCABULARY)


@pytest.mark.parametrize("combiner", ["fixed", "distance"])
def test_a_full_vote_leaves_the_other_tokens_possible(combiner):
    """The search may ban every token that neighbours voted for: the model's own then decide."""
    log_probs = torch.log_softmax(torch.randn(1, VOCABULARY), dim=-1)
    neighbours = Neighbours(torch.tensor([[0.0, 3.0]]), torch.tensor([[1, 1]]), torch.tensor([[8, 9]]))
    mixed = COMBINERS.get(combiner)(SearchSettings(weight=1.0)).combine(log_probs.clone(), neighbours)
    assert mixed.isfinite().all()
    assert mixed[0, 1].exp() == pytest.approx(1.0, abs=1e-6)
    mixed[0, 1] = log_probs[0, 1] = -torch.inf
    np.testing.assert_allclose(torch.softmax(mixed, dim=1), torch.softmax(log_probs, dim=1), atol=1e-5)


def test_the_weight_falls_with_the_distance_of_the_nearest():
    distances = torch.tensor([[0.0, 9.0], [25.0, 30.0], [100.0, 101.0], [400.0, 401.0], [-50.0, 3.0]])
    neighbours = Neighbours(distances, torch.zeros(5, 2, dtype=torch.int64), torch.arange(10).view(5, 2))
    got = DistanceCombiner(SearchSettings(temperature=100.0, weight=0.8)).weights(neighbours)
    assert got.tolist() == pytest.approx([0.8, 0.6, 0.0, 0.0, 0.8])
