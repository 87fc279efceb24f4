from __future__ import annotations

from functools import partial

import pytest
from rounds import Ratio, rates, rates_by_pieces, ratios, ratios_by_pieces


def test_systems_take_turns_piece_by_piece_and_change_who_begins():
    done = []

    def work(system, piece):
        done.append((system, piece))
        return 1

    systems = {name: [partial(work, name, piece) for piece in range(2)] for name in "ab"}
    measured = rates_by_pieces(systems, rounds=1)
    assert [piece for _, piece in done] == [0, 0, 1, 1] * 2
    begins = [system for system, _ in done[::2]]
    assert begins == ["b", "a", "a", "b"]
    assert {name: [len(pieces) for pieces in its] for name, its in measured.items()} == {"a": [2], "b": [2]}


def test_the_first_round_does_not_count():
    amounts = iter([10**12, 0, 0])
    assert rates({"one": lambda: next(amounts)}, rounds=2) == {"one": [0.0, 0.0]}


def test_ratios_are_of_the_same_round():
    assert ratios({"base": [1.0, 2.0, 4.0], "other": [0.5, 3.0, 4.0]})["other"] == Ratio(1.0, 0.5, 1.5)


def test_a_disturbed_piece_does_not_count():
    measured = {"base": [[1.0, 1.0, 1.0]], "other": [[0.5, 0.5, 0.001]]}
    assert ratios_by_pieces(measured) == {"base": pytest.approx((1, 1, 1)), "other": pytest.approx((0.5, 0.5, 0.5))}
