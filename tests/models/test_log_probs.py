import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import END, make_model
from torch import Tensor
from transformers import LogitsProcessorList

from knn_seq.models.decoding_hook import decoding_hook
from knn_seq.models.log_probs import LogProbs


@given(st.integers(1, 5), st.integers(2, 40), st.integers(0, 9))
def test_what_is_normalised_is_neither_copied_nor_normalised_again(rows, vocabulary, seed):
    log_probs = torch.randn(rows, 1, vocabulary, generator=torch.Generator().manual_seed(seed)).log_softmax(-1)
    marked = log_probs.as_subclass(LogProbs)
    taken = marked[:, -1, :].to(copy=True, dtype=torch.float32, device="cpu")
    for normalised in (F.log_softmax(taken, dim=-1), taken.log_softmax(dim=1), torch.log_softmax(taken.float(), 1)):
        assert type(normalised) is Tensor
        assert normalised.data_ptr() == log_probs.data_ptr()
        assert torch.equal(normalised, log_probs[:, -1])


def test_everything_else_makes_plain_tensors():
    marked = torch.randn(3, 8).log_softmax(-1).as_subclass(LogProbs)
    made = [marked + 1, marked.argmax(-1), torch.cat([marked, marked]), torch.topk(marked, 2).values, marked.clone()]
    assert {type(each) for each in made} == {Tensor}
    assert torch.equal((2 * marked).log_softmax(-1), torch.log_softmax(2 * marked.as_subclass(Tensor), -1))


@pytest.mark.parametrize("beams", [1, 3])
def test_logits_processors_get_plain_log_probabilities(beams):
    model, seen = make_model("marian"), []

    def processor(prefixes, scores):
        seen.append(scores)
        return scores

    hook = decoding_hook(model.network, model.key_hook, lambda step: step.log_probs, 2, search_normalises=beams > 1)
    with hook:
        model.network.generate(
            torch.tensor([[5, 9, END], [7, 8, END]]),
            num_beams=beams,
            max_new_tokens=4,
            logits_processor=LogitsProcessorList([processor]),
        )
    assert seen
    for scores in seen:
        assert type(scores) is Tensor
        torch.testing.assert_close(scores.exp().sum(1), torch.ones(2 * beams))
