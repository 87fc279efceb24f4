from __future__ import annotations

from functools import partial

import pytest
import torch
from lockstep import pause, rates_in_lockstep, rates_of_batches, twin
from tiny_models import make_model

from knn_seq.settings import DecodingSettings


def work(done, name, steps):
    for step in range(steps):
        pause()
        done.append((name, step))
    return steps


def test_systems_take_turns_step_by_step_and_change_their_order():
    done = []
    rates = rates_in_lockstep({name: partial(work, done, name, 3) for name in "ab"})
    assert "".join(name for name, _ in done) == "ba" + "ab" + "ba"
    assert set(rates) == {"a", "b"}
    assert min(rates.values()) > 0


def test_one_that_has_ended_does_not_hold_up_the_others():
    done = []
    rates_in_lockstep({"short": partial(work, done, "short", 1), "long": partial(work, done, "long", 4)})
    assert [step for name, step in done if name == "long"] == [0, 1, 2, 3]


def test_another_system_begins_with_each_batch_and_the_first_round_does_not_count():
    begun = []

    def begin(name):
        begun.append(name)
        pause()
        return 1

    measured = rates_of_batches({name: [partial(begin, name)] * 3 for name in "ab"}, rounds=2)
    assert begun[::2] == list("bababababa")[: len(begun) // 2]
    assert {name: [len(batches) for batches in its] for name, its in measured.items()} == {"a": [3, 3], "b": [3, 3]}


def test_alone_nobody_waits():
    assert work([], "alone", 2) == 2


def test_what_goes_wrong_in_a_system_is_told():
    def fail():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        rates_in_lockstep({"one": fail})


def test_a_twin_has_the_same_weights_and_hooks_of_its_own():
    model = make_model("marian")
    other = twin(model)
    for mine, its in zip(model.network.parameters(), other.network.parameters(), strict=True):
        assert mine.data_ptr() == its.data_ptr()
    sources, decoding = [[5, 9, 2], [7, 2]], DecodingSettings(beam_size=2, max_length=4)
    steps = []

    def step_hook(step):
        steps.append(step)
        return torch.log_softmax(-step.log_probs, dim=-1)

    expected = model.generate(sources, decoding)
    assert other.generate(sources, decoding) == expected
    assert other.generate(sources, decoding, step_hook) != expected
    assert steps
    assert model.generate(sources, decoding) == expected
