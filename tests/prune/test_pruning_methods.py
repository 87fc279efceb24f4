"""Which entries each method drops, on evidence of all kinds."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from knn_seq.errors import InvalidSetting
from knn_seq.prune import PRUNING_METHODS, Evidence
from knn_seq.prune.base import highest
from knn_seq.prune.known import _mixture, _usual_distance
from knn_seq.storage import DatastoreFolder, Ragged


def folder_of(sentences, counts=None):
    """A datastore with these target tokens, all of which are entries; nothing of it is on the disk."""
    store = DatastoreFolder("nowhere")
    lengths = np.array([len(tokens) for tokens in sentences], np.int64)
    items = np.array([token for tokens in sentences for token in tokens], np.int32)
    values = Ragged(items, np.concatenate([[0], lengths.cumsum()]))
    counts = None if counts is None else np.array(counts, np.int32)
    store.__dict__.update(values=values, targets=values, positions=None, counts=counts)
    return store


def evidence_of(store, seed, k=4, known=0.6):
    """Keys at random, with their exact neighbours, and a model that knows some of the values."""
    generator, entries = np.random.default_rng(seed), len(store.values.items)
    keys = generator.integers(0, 6, (entries, 3)).astype(np.float32)  # some are equal
    distances = ((keys[:, None] - keys[None]) ** 2).sum(axis=2)
    np.fill_diagonal(distances, np.inf)
    k = min(k, entries - 1)
    neighbours = np.argsort(distances, axis=1, kind="stable")[:, :k]
    of_choice = -generator.random(entries).astype(np.float32)
    of_value = np.where(generator.random(entries) < known, of_choice, of_choice - 1 - generator.random(entries))
    log_probs = np.stack([of_value, of_choice], axis=1).astype(np.float32)
    return Evidence(store, log_probs, neighbours, np.take_along_axis(distances, neighbours, axis=1))


SENTENCES = st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=12), min_size=2, max_size=12)
SHARES = st.floats(0.02, 1.0)


def kept_number(entries, share):
    return max(round(share * entries), 1)


@pytest.mark.parametrize("name", ["known", "ngram"])
@given(sentences=SENTENCES, share=SHARES, seed=st.integers(0, 99))
def test_exactly_the_share_stays_the_same_every_time(name, sentences, share, seed):
    evidence = evidence_of(folder_of(sentences), seed)
    keep = kept_number(len(evidence), share)
    first, second = (PRUNING_METHODS.get(name)().select(evidence, keep) for _ in range(2))
    assert first.kept.sum() == keep
    assert np.array_equal(first.kept, second.kept)
    assert first.counts is None


@given(sentences=SENTENCES, share=SHARES, seed=st.integers(0, 99))
def test_known_drops_what_the_model_knows(sentences, share, seed):
    evidence = evidence_of(folder_of(sentences), seed)
    keep, known = kept_number(len(evidence), share), evidence.predicted()
    kept = PRUNING_METHODS.get("known")().select(evidence, keep).kept
    assert known[~kept].all() or not known[kept].any()


@given(sentences=SENTENCES, seed=st.integers(0, 99), missing=st.integers(0, 4))
def test_known_predicts_entries_as_the_formula_does(sentences, seed, missing):
    evidence = with_missing_neighbours(evidence_of(folder_of(sentences), seed), missing)
    kept = np.random.default_rng(seed).random(len(evidence)) < 0.7
    made = _mixture(evidence, slice(0, len(evidence)), kept, 2.5)
    np.testing.assert_allclose(made, slowly_predicted(evidence, kept, 2.5), atol=1e-5)


def with_missing_neighbours(evidence, missing):
    """The last neighbours of each second entry were not found."""
    neighbours, distances = evidence.neighbours.copy(), evidence.distances.astype(np.float32)
    first = max(neighbours.shape[1] - missing, 0)
    neighbours[::2, first:], distances[::2, first:] = -1, np.finfo(np.float32).max
    return Evidence(evidence.store, evidence.log_probs, neighbours, distances)


def slowly_predicted(evidence, kept, temperature):
    values, predicted = evidence.store.values.items, []
    for entry, (row, far) in enumerate(zip(evidence.neighbours, evidence.distances, strict=True)):
        found = [(int(other), float(distance)) for other, distance in zip(row, far, strict=True) if other >= 0]
        weights = [math.exp(-distance / temperature) for _, distance in found]
        same = [kept[other] and values[other] == values[entry] for other, _ in found]
        of_neighbours = sum(w for w, counts in zip(weights, same, strict=True) if counts) / (sum(weights) or 1)
        predicted.append(0.3 * of_neighbours + 0.7 * math.exp(evidence.log_probs[entry, 0]))
    return predicted


@given(sentences=SENTENCES, share=SHARES, seed=st.integers(0, 99), missing=st.integers(0, 4))
def test_known_drops_the_best_predicted_round_by_round(sentences, share, seed, missing):
    evidence = with_missing_neighbours(evidence_of(folder_of(sentences), seed), missing)
    surplus = len(evidence) - kept_number(len(evidence), share)
    left, known, usual = set(range(len(evidence))), evidence.predicted(), _usual_distance(evidence)
    for done in range(1, 21):
        kept = np.array([entry in left for entry in range(len(evidence))])
        scores = _mixture(evidence, slice(0, len(evidence)), kept, usual).astype(np.float32)
        order = sorted(
            left, key=lambda entry: (not known[entry], -np.float32(scores[entry] - (not known[entry])), entry)
        )
        left -= set(order[: len(left) - (len(evidence) - surplus * done // 20)])
    kept = PRUNING_METHODS.get("known")().select(evidence, len(evidence) - surplus).kept
    assert np.flatnonzero(kept).tolist() == sorted(left)


def test_known_looks_at_one_block_after_the_other(monkeypatch):
    evidence = evidence_of(folder_of([[1, 2, 3, 1], [1, 2, 2, 2], [3, 1, 1]] * 5), 3)
    at_once = PRUNING_METHODS.get("known")().select(evidence, 30).kept
    monkeypatch.setattr("knn_seq.prune.base.BLOCK", 7)
    assert np.array_equal(PRUNING_METHODS.get("known")().select(evidence, 30).kept, at_once)


def test_known_leaves_neighbours_that_know_what_is_gone():
    store = folder_of([[5] * 9, [6], [7, 7]])
    keys = np.array([*range(9), 100.0, 200.0, 201.0])
    distances = (keys[:, None] - keys[None]) ** 2
    neighbours = np.argsort(distances, axis=1, kind="stable")[:, 1:3]
    log_probs = np.full((12, 2), -0.01, np.float32)
    log_probs[11, 0] = -3.0  # the model does not know the last one
    evidence = Evidence(store, log_probs, neighbours, np.take_along_axis(distances, neighbours, 1))
    known = PRUNING_METHODS.get("known")()
    # In the row each second one goes, between two that stay.
    assert np.flatnonzero(~known.select(evidence, 8).kept).tolist() == [0, 2, 4, 6]
    # 9 has no neighbour of its value, and the model does not know 11.
    assert known.select(evidence, 6).kept[[9, 11]].all()
    for keep in range(12):
        kept = known.select(evidence, keep).kept
        assert kept.sum() == keep
        assert kept[11] or keep == 0


@pytest.mark.parametrize(("distance", "usual"), [(0.0, 1.0), (4.0, 4.0)])
def test_a_usual_distance_is_never_zero(distance, usual):
    store, log_probs = folder_of([[1, 1, 1]]), np.zeros((3, 2), np.float32)
    evidence = Evidence(store, log_probs, np.array([[1], [2], [-1]]), np.full((3, 1), distance, np.float32))
    assert _usual_distance(evidence) == usual
    without = Evidence(store, log_probs, np.empty((3, 0), np.int64), np.empty((3, 0), np.float32))
    assert _usual_distance(without) == 1.0
    assert PRUNING_METHODS.get("known")().select(without, 2).kept.sum() == 2


@given(sentences=SENTENCES, share=SHARES, seed=st.integers(0, 99), counted=st.booleans())
def test_merged_entries_are_counted(sentences, share, seed, counted):
    entries = sum(map(len, sentences))
    counts = np.random.default_rng(seed).integers(1, 5, entries) if counted else np.ones(entries, int)
    store = folder_of(sentences, counts if counted else None)
    evidence, keep = evidence_of(store, seed), kept_number(entries, share)
    merge = PRUNING_METHODS.get("merge")()
    same = store.values.items[evidence.neighbours] == store.values.items[:, None]
    if groups(np.argwhere(same), evidence.neighbours, entries) > keep:
        with pytest.raises(InvalidSetting, match="keep at least"):
            merge.select(evidence, keep)
        return
    kept, merged = merge.select(evidence, keep)
    assert kept.sum() == keep
    assert merged[kept].sum() == counts.sum()
    before, after = (Counter(), Counter())
    for entry, value in enumerate(store.values.items.tolist()):
        before[value] += int(counts[entry])
        after[value] += int(merged[entry]) if kept[entry] else 0
    assert before == after  # an entry is merged only with entries of its value


def groups(pairs, neighbours, entries):
    """How many groups there are if entries are joined by these places of the neighbours' array."""
    group = list(range(entries))
    for entry, place in pairs:
        old, new = group[neighbours[entry, place]], group[entry]
        group = [new if each == old else each for each in group]
    return len(set(group))


def test_the_nearest_are_merged_first():
    store = folder_of([[1, 1, 1, 1, 2]])
    keys = np.array([0.0, 10.0, 10.5, 30.0, 10.1])
    distances = (keys[:, None] - keys[None]) ** 2
    neighbours = np.argsort(distances, axis=1)[:, 1:]
    evidence = Evidence(store, np.empty((5, 0)), neighbours, np.take_along_axis(distances, neighbours, 1))
    merge = PRUNING_METHODS.get("merge")()
    kept, counts = merge.select(evidence, 4)
    assert (np.flatnonzero(kept).tolist(), counts[kept].tolist()) == ([0, 1, 3, 4], [1, 2, 1, 1])
    kept, counts = merge.select(evidence, 3)
    assert (np.flatnonzero(kept).tolist(), counts[kept].tolist()) == ([1, 3, 4], [3, 1, 1])
    kept, counts = merge.select(evidence, 2)
    assert (np.flatnonzero(kept).tolist(), counts[kept].tolist()) == ([1, 4], [4, 1])
    with pytest.raises(InvalidSetting, match=r"keep at least 0.40, or let them look at more neighbours"):
        merge.select(evidence, 1)


def test_an_ngram_that_is_there_often_is_thinned_out():
    often, once = [3, 4], [[7, number] for number in range(20, 40)]
    store = folder_of([often] * 100 + once)
    entries = len(store.values.items)
    evidence = Evidence(store, np.full((entries, 2), -1.0, np.float32), np.empty((entries, 0), int), np.empty(0))
    kept = PRUNING_METHODS.get("ngram")().select(evidence, 60).kept
    assert kept[201::2].all()  # the 20 that are there once
    first, second = kept[0:200:2].sum(), kept[1:200:2].sum()  # both tokens of the other, and the one before numbers
    assert abs(int(first) - int(second)) <= 1
    assert first + second + kept[200::2].sum() == 40


def test_an_ngram_is_as_easy_as_its_easiest_end():
    store = folder_of([[3, 4], [3, 4], [5, 4]])
    log_probs = np.array([-0.1, -4.0, -0.1, -4.0, -6.0, -4.0], np.float32)
    from knn_seq.prune.ngram import _costs, _ngrams

    evidence = Evidence(store, np.stack([log_probs] * 2, axis=1), np.empty((6, 0), int), np.empty(0))
    np.testing.assert_allclose(np.log(_costs(evidence, 2)), [0.1, 2.05, 0.1, 2.05, 6.0, 4.0], rtol=1e-6)
    ngrams = _ngrams(evidence, 2)
    assert ngrams[1] == ngrams[3] != ngrams[5]
    assert _ngrams(evidence, 1)[5] == _ngrams(evidence, 1)[1]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30), st.data())
def test_of_equal_scores_the_first_stay(scores, data):
    keep = data.draw(st.integers(0, len(scores)))
    wanted = sorted(range(len(scores)), key=lambda entry: (-scores[entry], entry))[:keep]
    assert np.flatnonzero(highest(np.array(scores), keep)).tolist() == sorted(wanted)
