"""The few tokens that a search looks at, against the complete distribution."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from knn_seq.models.search import distribution as module
from knn_seq.models.search.distribution import CHUNK, Distribution
from knn_seq.models.step import StepChanges

ROWS, VOCABULARY = st.integers(1, 4), st.sampled_from([5, CHUNK, 4 * CHUNK, 9 * CHUNK + 1, 20 * CHUNK - 1])


def made(rows, vocabulary, seed):
    return torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed))


def check(distribution, wanted):
    """Its best tokens are those of the complete one, and so is everything else."""
    for count in (1, 3, 4):
        count = min(count, wanted.shape[1])
        best = distribution.best(count)
        torch.testing.assert_close(best.log_probs, wanted.topk(count).values)
        torch.testing.assert_close(wanted.gather(1, best.tokens), best.log_probs)
        assert all(len(set(row)) == count for row in best.tokens.tolist())
    everything = torch.arange(wanted.shape[1]).expand(len(wanted), -1)
    torch.testing.assert_close(distribution.of(everything), wanted)
    for row, values in enumerate(wanted):
        torch.testing.assert_close(distribution.of(everything[row : row + 1], row)[0], values)
        assert values[distribution.best_token(row)] == values.max()
        torch.testing.assert_close(torch.tensor(distribution.of_row(row, [0, len(values) - 1])), values[[0, -1]])
        best = distribution.best_tokens(row, 3)
        torch.testing.assert_close(values[best], values.topk(min(3, len(values))).values)


@pytest.fixture(params=["few", "many"], scope="module", autouse=True)
def size(request):
    """With a column for every token from the beginning, and without."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "many":
            patch.setattr(module, "FEW", 0)
        yield


@settings(max_examples=60, deadline=None)
@given(rows=ROWS, vocabulary=VOCABULARY, seed=st.integers(0, 99), shortlist=st.booleans(), data=st.data())
def test_whatever_happens_to_it_the_best_are_found(rows, vocabulary, seed, shortlist, data):
    logits = made(rows, vocabulary, seed)
    distribution, wanted = Distribution(logits.clone()), torch.log_softmax(logits, dim=1)
    if shortlist:
        some = torch.arange(0, vocabulary, 1 if vocabulary < 10 else 3)
        distribution = Distribution(logits[:, some].clone(), some, vocabulary)
        wanted = torch.full_like(logits, -torch.inf)
        wanted[:, some] = torch.log_softmax(logits[:, some], dim=1)
    token, row = st.integers(0, vocabulary - 1), st.integers(0, rows - 1)
    kinds = st.sampled_from(["best", "best", "change", "write", "write row", "ban", "only", "shift"])
    for kind in data.draw(st.lists(kinds, max_size=6)):
        distribution.best(1)  # which is not to be remembered where it changes
        if kind == "best":
            check(distribution, wanted)
        elif kind == "change":
            tokens = torch.tensor(
                data.draw(st.lists(st.lists(token, min_size=3, max_size=3), min_size=rows, max_size=rows))
            )
            shift = -torch.rand(rows, 1, generator=torch.Generator().manual_seed(seed))
            values = (wanted.gather(1, tokens) + 2.0).clamp(min=-9.0 - tokens / 1000)  # nothing else has so little
            torch.testing.assert_close(distribution.of(tokens), wanted.gather(1, tokens))
            torch.testing.assert_close(distribution.largest(1), wanted.amax(dim=1, keepdim=True))
            distribution.change(StepChanges(shift, tokens, values))
            wanted = StepChanges(shift, tokens, values).apply(wanted.clone())
        elif kind == "write":
            at = data.draw(row), data.draw(token)
            distribution.write(torch.tensor([at[0]]), torch.tensor([at[1]]), -1.5)
            wanted[at] = -1.5
        elif kind == "write row":
            at, tokens = data.draw(row), data.draw(st.lists(token, min_size=1, max_size=3, unique=True))
            values = [-1.25 - token / 1000 for token in tokens]
            distribution.write_row(at, tokens, values)
            wanted[at, tokens] = torch.tensor(values)
        elif kind == "shift":
            at = data.draw(row)
            distribution.shift_row(at, -0.25)
            wanted[at] -= 0.25
        elif kind == "ban" and vocabulary > 5:
            tokens = data.draw(st.lists(token, min_size=1, max_size=2))
            distribution.ban(tuple(tokens))
            wanted[:, tokens] = -torch.inf
        elif kind == "only" and vocabulary > 5:
            tokens, at = data.draw(st.lists(token, min_size=5, max_size=5, unique=True)), data.draw(row)
            distribution.only(at, torch.tensor(tokens))
            wanted[at] = -torch.inf
            wanted[at, tokens] = 0.0
    torch.testing.assert_close(distribution.best(1).log_probs, wanted.amax(dim=1, keepdim=True))
    torch.testing.assert_close(distribution.log_probs, wanted)
    if (wanted > -torch.inf).sum(dim=1).min() >= 4:
        check(distribution, wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tokens_that_cannot_come_have_no_probability(dtype):
    logits, some = made(3, 40, 0).to(dtype), torch.arange(1, 1000, 25)
    distribution = Distribution(logits.clone(), some, 1000)
    torch.testing.assert_close(distribution.log_probs[:, some], torch.log_softmax(logits.float(), dim=1))
    assert distribution.log_probs.exp().sum(dim=1) == pytest.approx([1, 1, 1])
    assert torch.isin(distribution.best(5).tokens, some).all()


def test_what_was_left_out_is_asked_for_row_by_row():
    some = torch.tensor([1, 4, 6])
    distribution = Distribution(
        torch.zeros(3, 3) - torch.tensor(3.0).log(), some, 8, lambda rows, tokens: -10.0 * rows - tokens
    )
    for _ in range(2):
        torch.testing.assert_close(distribution.of(torch.tensor([[2, 5]]), 2), torch.tensor([[-22.0, -25.0]]))
        found = distribution.of(torch.tensor([[2], [2], [7]])).flatten()
        torch.testing.assert_close(found, torch.tensor([-2.0, -12.0, -27.0]))
        assert distribution.of_row(2, [2, 5]) == pytest.approx([-22.0, -25.0])
        assert distribution.log_probs.shape == (3, 8)  # and once more, with a column for every token
    distribution.shift_row(1, -3.0)
    assert [distribution.of_row(row, [2])[0] for row in range(3)] == pytest.approx([-2.0, -15.0, -22.0])


def test_tokens_that_are_left_out_are_relative_to_those_that_can_come():
    logits, some, rows = made(4, 1000, 0), torch.arange(1, 1000, 25), torch.tensor([3, 1])
    distribution = Distribution(logits[:, some].clone(), some, 1000, lambda rows, tokens: logits[rows, tokens])
    tokens = torch.tensor([[1, 2, 7, 26]]).expand(4, -1)
    wanted = logits.gather(1, tokens) - logits[:, some].logsumexp(dim=1, keepdim=True)
    torch.testing.assert_close(distribution.of(tokens), wanted)
    torch.testing.assert_close(distribution.rows(rows).of(tokens[rows]), wanted[rows])
    assert distribution.largest(0).shape == (4, 0)
