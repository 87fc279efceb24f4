"""The probabilities of every step of a real search against a slow, obvious reference."""

from __future__ import annotations

from functools import partial
from unittest import mock

import numpy as np
import pytest
import torch
from tiny_models import DECODER_ONLY, END, NETWORKS, make_model, number_pairs, number_store_of
from transformers import GenerationConfig

from knn_seq.combine.fixed import FixedCombiner
from knn_seq.datastore import Datastore
from knn_seq.decoding.step import KnnBatch
from knn_seq.models import Source, TokenPair, load_model
from knn_seq.models.decoding_hook import decoding_hook
from knn_seq.models.search import loop
from knn_seq.models.search.rules import apply_rules
from knn_seq.retrieve.full import FullRetriever
from knn_seq.settings import ModelSettings, SearchSettings

KEY_MODULES = {
    "marian": "model.decoder.layers.1.fc1",
    "bart": "model.decoder.layers.1.fc1",
    "mbart": "model.decoder.layers.1.fc1",
    "m2m100": "model.decoder.layers.1.fc1",
    "fsmt": "model.decoder.layers.1.fc1",
    "t5": "decoder.block.1.layer.2.DenseReluDense",
    "gpt2": "transformer.h.1.mlp",
    "llama": "model.layers.1.mlp",
    "qwen2": "model.layers.1.mlp",
}
MODES = {
    "greedy": {"num_beams": 1, "do_sample": False},
    "beam": {"num_beams": 4, "do_sample": False},
    "sampling": {"num_beams": 1, "do_sample": True, "num_return_sequences": 3, "top_k": 0},
}
K, WEIGHT = 6, 0.4


class Reference:
    """kNN-MT as the formula says: one sentence at a time, no cache, no batch, no index, in float64."""

    def __init__(self, network, prefix, key_module, pairs, temperature):
        self.network, self.prefix, self.temperature = network, prefix, temperature
        self.module = network.get_submodule(key_module) if isinstance(key_module, str) else key_module
        self.keys, self.values = [], []
        for source, target in pairs:
            for t, token in enumerate(target):
                self.keys.append(self.run(source, target[:t])[0])
                self.values.append(token)

    @torch.no_grad()
    def run(self, source, generated):
        """The key and log p_MT after a prefix."""
        seen = []
        handle = self.module.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
        if self.prefix is None:
            logits = self.network(input_ids=torch.tensor([[*source, *generated]]), use_cache=False).logits
        else:
            logits = self.network(
                input_ids=torch.tensor([list(source)]),
                attention_mask=torch.ones(1, len(source), dtype=torch.int64),
                decoder_input_ids=torch.tensor([[*self.prefix, *generated]]),
                use_cache=False,
            ).logits
        handle.remove()
        key = seen[-1].reshape(-1, seen[-1].shape[-1])[-1]
        return key.double().numpy(), torch.log_softmax(logits[0, -1].double(), dim=-1).numpy()

    def probabilities(self, source, generated):
        query, log_probs = self.run(source, generated)
        distances = ((np.stack(self.keys) - query) ** 2).sum(axis=1)
        nearest = np.argsort(distances)[:K]
        similarities = np.exp(-(distances[nearest] - distances[nearest[0]]) / self.temperature)
        p_knn = np.zeros_like(log_probs)
        for probability, entry in zip(similarities / similarities.sum(), nearest, strict=True):
            p_knn[self.values[entry]] += probability
        return WEIGHT * p_knn + (1 - WEIGHT) * np.exp(log_probs)


class Recorder(KnnBatch):
    """Keeps what it is asked, and what it makes of it."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.seen, self.read = [], []

    def changes(self, step):
        self.seen.append((step.sentences, step.prefixes))  # now: the search goes on
        return super().changes(step)


def check_every_step(model, key_module, store, pairs, sources, searched):
    """What a search reads at every step against the reference.

    Args:
        searched: Lets the model search with a hook; returns what was read step by step.
    """
    temperature = float(np.median(np.var(store.keys.astype(np.float64), axis=0)) * store.keys.shape[1])
    reference = Reference(model.network, getattr(model, "prefix", None), key_module, pairs, temperature)
    settings = SearchSettings(k=K, temperature=temperature, weight=WEIGHT)
    retriever = FullRetriever.open(store, model, settings)
    torch.manual_seed(1)
    recorder = Recorder(retriever, FixedCombiner(), settings, [Source("", source) for source in sources])
    read = searched(model, sources, recorder)
    assert len(read) == len(recorder.seen) > 1
    rows = 0
    for (sentences, prefixes), logits in zip(recorder.seen, read, strict=True):
        probabilities = torch.softmax(logits, dim=-1).numpy()
        for sentence, prefix, got in zip(sentences.tolist(), prefixes.tolist(), probabilities, strict=True):
            prefix = [token for token in prefix if token >= 0]
            if END in prefix:  # this one has ended: its row is padding
                continue
            wanted = reference.probabilities(sources[sentence], prefix)
            np.testing.assert_allclose(got, wanted, atol=1e-5)
            rows += 1
    assert rows >= len(sources)


def with_generate(mode, model, sources, hook):
    """The search of Transformers."""
    read = []
    with decoding_hook(model.network, model.key_hook, hook, len(sources), search_normalises=False):
        handle = model.network.register_forward_hook(
            lambda network, inputs, output: read.append(output.logits[:, -1].clone())
        )
        model.network.generate(**model._decoding_inputs(sources), **MODES[mode], max_new_tokens=6, max_length=None)
        handle.remove()
    return read


def with_our_search(mode, model, sources, hook):
    """Ours, with sentences that enter while others are under way."""
    read = []

    def rules(distribution, sentences):
        read.append(distribution.log_probs.clone())
        return apply_rules(distribution, sentences)

    with mock.patch.object(loop, "apply_rules", rules):
        config = GenerationConfig(**MODES[mode], max_new_tokens=6)
        assert len(list(model.generate_stream(sources, config, hook, batch_size=2))) == len(sources)
    return read


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """A datastore for each tiny model, and what it was built from."""
    made = {}

    def make(kind):
        if kind not in made:
            model = make_model(kind)
            made[kind] = model, number_store_of(model, tmp_path_factory.mktemp(kind))
        return (*made[kind], number_pairs())

    return make


@pytest.mark.parametrize("searched", [with_our_search, with_generate])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", NETWORKS)
def test_every_step_equals_the_reference(kind, mode, searched, stores):
    model, store, pairs = stores(kind)
    sources = [[9, 10, 11, 12, END], [13, 14, END], [20, END]]
    check_every_step(model, KEY_MODULES[kind], store, pairs, sources, partial(searched, mode))


@pytest.mark.parametrize("kind", NETWORKS)
def test_keys_do_not_depend_on_the_batch(kind, stores):
    model, store, pairs = stores(kind)
    reference = Reference(model.network, getattr(model, "prefix", None), KEY_MODULES[kind], pairs[:8], temperature=1.0)
    keys = model.keys([TokenPair(*pair) for pair in pairs[:8]])
    np.testing.assert_allclose(keys.numpy(), np.stack(reference.keys), atol=2e-5, rtol=1e-4)
    np.testing.assert_allclose(store.keys[: len(keys)], np.stack(reference.keys), atol=2e-5, rtol=1e-4)
    assert store.values.items[: len(keys)].tolist() == reference.values
    assert (kind in DECODER_ONLY) == (not hasattr(model, "prefix"))


@pytest.mark.parametrize("mode", MODES)
def test_every_step_of_the_firefox_model_equals_the_reference(mode, tmp_path):
    model = load_model(ModelSettings("firefox:pt-en", dtype="float32", device="cpu"))
    texts = [
        ("No princípio criou Deus os céus e a terra.", "In the beginning God created the heaven and the earth."),
        ("Disse Deus: haja luz. E houve luz.", "And God said, Let there be light: and there was light."),
        ("Viu Deus que a luz era boa.", "And God saw the light, that it was good."),
    ]
    (tmp_path / "train.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in texts))
    options = {"key_dtype": "float32", "index_recipe": "Flat", "calibration_sentences": 0}
    store = Datastore.build(tmp_path / "store", model, tmp_path / "train.tsv", **options)
    sources, targets = zip(*texts, strict=True)
    pairs = list(zip(model.tokenizer.encode_sources(sources), model.tokenizer.encode_targets(targets), strict=True))
    wanted = model.tokenizer.encode_sources(["Deus viu a luz.", "A terra era boa, e houve luz no céu."])
    module = model.network.get_decoder().layers[-1].fc1
    check_every_step(model, module, store, pairs, wanted, partial(with_our_search, mode))
