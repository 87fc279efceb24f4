from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import finetune
import pytest
import torch
from domains import ParallelText
from finetune import Batch, bucketed, tokenized
from line_plot import shown, write_lines

from knn_seq.models import TokenPair, load_model
from knn_seq.models.firefox_network import find_model_folder, load_firefox
from knn_seq.settings import ModelSettings


def test_batches_have_all_pairs_and_few_tokens(monkeypatch):
    monkeypatch.setattr(finetune, "BATCH_TOKENS", 20)
    pairs = [TokenPair([1], [2] * length) for length in (1, 3, 3, 5, 9, 11, 30)]
    batches = list(bucketed(pairs))
    assert [pair for batch in batches for pair in batch] == pairs
    assert all(len(batch) * len(batch[-1].target) <= 20 for batch in batches if len(batch) > 1)


@pytest.fixture(scope="module")
def model():
    return load_model(ModelSettings("firefox:pt-en", dtype="float32"))


def test_the_loss_is_that_of_the_model_and_training_lowers_it(model):
    text = ParallelText(
        "", ["Haja luz.", "No princípio criou Deus os céus e a terra."], ["Be light.", "God made all of it."]
    )
    pairs = tokenized(text, model.tokenizer)
    log_probs = model.score(pairs).log_probs
    targets = torch.tensor([token for pair in pairs for token in pair.target])
    expected = -log_probs[torch.arange(len(targets)), targets].mean()
    network, _ = load_firefox(find_model_folder("pt-en"))
    network.requires_grad_(True)
    batch = Batch.of(pairs, network.config.eos_token_id)
    first = batch.loss(network)
    torch.testing.assert_close(first.detach(), expected, rtol=1e-4, atol=1e-4)
    optimizer = torch.optim.AdamW(network.parameters(), 1e-4)
    first.backward()
    optimizer.step()
    assert batch.loss(network).item() < first.item()


def test_lines_are_drawn_without_a_background(tmp_path):
    path = tmp_path / "curves" / "a.svg"
    write_lines(path, ("entries", "BLEU"), {"one": [(10, 1.0), (1000, 2.0)]}, {"two": (20, 1.5)}, ("base", 0.5))
    root = ElementTree.parse(path).getroot()
    texts = {"".join(each.itertext()).strip() for each in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"entries", "BLEU", "one", "two", "base", "10", "1k"} <= texts
    assert "fill: #ffffff" not in path.read_text()


def test_numbers_are_shown_in_few_characters():
    assert [shown(number) for number in (0.3, 20, 14_985, 1_100_000)] == ["0.3", "20", "15k", "1.1m"]
