from __future__ import annotations

import numpy as np
import pytest

from knn_seq.metrics.bootstrap import paired_bootstrap


def slow_p_value(first, other, samples, seed):
    """The definition, sample by sample."""
    drawn = np.random.default_rng(seed).choice(len(first), size=(samples, len(first)))
    differences = np.array([abs(np.mean(other[sample]) - np.mean(first[sample])) for sample in drawn])
    greater = differences - np.mean(differences) > abs(np.mean(other) - np.mean(first))
    return (sum(greater) + 1) / (samples + 1)


@pytest.mark.parametrize("gain", [0.0, 0.1, 0.2, 0.3])
def test_p_values_of_means_are_those_of_the_definition(gain):
    generator = np.random.default_rng(1)
    first = generator.normal(0.5, 1, 80)
    other = first + generator.normal(gain, 0.8, 80)
    expected = slow_p_value(first, other, 400, 9)
    assert paired_bootstrap(first, other, samples=400, seed=9) == pytest.approx(expected)
    assert paired_bootstrap(other, first, samples=400, seed=9) == pytest.approx(expected)


def test_a_gain_in_every_sentence_is_no_chance_and_noise_is():
    generator = np.random.default_rng(2)
    first = generator.normal(0, 1, 200)
    assert paired_bootstrap(first, first + 0.1 + generator.random(200) / 10) == 1 / 1001
    assert paired_bootstrap(first, first + generator.permutation([-1.0, 1.0] * 99 + [0.5, -0.4])) > 0.2


def test_one_sentence_of_many_that_differs():
    # How often it is drawn has a Poisson distribution: twice or more with probability 0.26, three times or more 0.08.
    other = np.zeros(500)
    other[7] = 1.0
    assert 0.06 < paired_bootstrap(np.zeros(500), other) < 0.3


def test_nothing_is_shown_by_no_difference_or_one_sentence():
    scores = [0.1, 0.7, 0.4]
    assert paired_bootstrap(scores, list(scores)) == 1
    assert paired_bootstrap([0.1], [0.9]) == 1


def test_a_score_of_sums():
    # Each sentence has hits and tries; the score of a test set is their ratio.
    generator = np.random.default_rng(4)
    tries = generator.integers(5, 20, 100)
    first, other = (np.stack([generator.binomial(tries, chance), tries], axis=1) for chance in (0.4, 0.6))
    ratio = lambda sums: sums[0] / sums[1]  # noqa: E731
    assert paired_bootstrap(first, other, score=ratio) == 1 / 1001
    assert paired_bootstrap(first, first[::-1], score=ratio) == 1  # the same sums
