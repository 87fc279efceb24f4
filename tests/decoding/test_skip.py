"""Searches that are skipped: the same rows in decoding, likelihood and a slow reference."""

from __future__ import annotations

import shutil
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from skipping import SlowRule, skip_half, skip_path
from tiny_models import END

from knn_seq import Datastore, KnnSeqError, Translator
from knn_seq.combine import mix_vocabulary
from knn_seq.decoding.continuations import FEATURES
from knn_seq.decoding.skip import SkipNetwork, Skipping, position_by_position
from knn_seq.decoding.step import combiner_inputs
from knn_seq.errors import DamagedFile, InvalidSetting
from knn_seq.index import Neighbours
from knn_seq.likelihood import predict, predict_batches
from knn_seq.models import TokenPair
from knn_seq.storage.weights import save_weights

SOURCES = ["5 6 7", "8", "9 10 11 12 13", "20 21 22 23 24 25 26", "5 6 7", "30 31"]
LENGTH = 10
SETTINGS = {"skip": "learned", "k": 6, "temperature": 30.0, "weight": 0.7, "max_length": LENGTH}
MODES = {
    "greedy": {"beam_size": 1},
    "beam": {"beam_size": 4, "nbest": 3},
    "sentence by sentence": {"beam_size": 3, "batch_size": 1},
    "small batches": {"beam_size": 2, "batch_size": 4},
}


@pytest.fixture(scope="module")
def translator(skip_store):
    return Translator(skip_store, device="cpu", combiner="fixed")


class SlowDecoder:
    """kNN-MT that leaves a step to the model where the written-out rule says so: a step at a time, no batch."""

    def __init__(self, translator, source, options):
        self.search, _ = translator.settings(options)
        self.model, decoder = translator.model, translator.decoder
        [self.source], _ = translator.read([source])
        self.retriever, self.combiner = decoder.retriever(self.search), decoder.combiner(self.search)
        self.prepared = self.retriever.prepare([self.source], self.search)
        self.store = translator.store

    def step(self, prefix):
        """log p of the next token, (vocabulary,), and whether it was searched for; one prefix after the other."""
        if not prefix:
            self.rule = SlowRule(self.store)
        keys, log_probs = self.model.score([TokenPair(self.source.tokens, [*prefix, END])])
        keys, log_probs = keys[-1:], log_probs[-1:]
        if not self.rule.needed(prefix[-1] if prefix else None, log_probs[0].double().numpy()):
            return log_probs[0], False
        found = self.retriever.retrieve(keys, torch.zeros(1, dtype=torch.int64), self.search, self.prepared)
        self.rule.found(found)
        inputs = combiner_inputs(self.combiner.best_log_probs, keys, found, log_probs)
        return mix_vocabulary(log_probs.clone(), found, self.combiner.combine(inputs, self.search))[0], True


@pytest.mark.parametrize("combiner", ["fixed", "learned"])
def test_greedy_decoding_is_the_reference(translator, combiner):
    options = SETTINGS | {"combiner": combiner, "beam_size": 1}
    if combiner == "learned":
        del options["temperature"]
    searched = []
    for source, output in zip(SOURCES, translator.translate(SOURCES, **options), strict=True):
        slow, tokens = SlowDecoder(translator, source, options), []
        while len(tokens) < LENGTH and END not in tokens:
            log_probs, asked = slow.step(tokens)
            tokens.append(int(log_probs.argmax()))
            searched.append(asked)
        assert list(output.tokens) == tokens
    assert 0.1 < sum(searched) / len(searched) < 0.9


@pytest.mark.parametrize("retriever", ["full", "subset"])
@pytest.mark.parametrize("mode", MODES)
def test_scores_are_those_of_the_reference(translator, retriever, mode):
    options = SETTINGS | MODES[mode] | {"retriever": retriever}
    searched = []
    for source, best in zip(SOURCES, translator.translate(SOURCES, **options), strict=True):
        slow = SlowDecoder(translator, source, options)
        for output in (best, *best.alternatives):
            steps = [slow.step(output.tokens[:place]) for place in range(len(output.tokens))]
            score = sum(log_probs[token].item() for (log_probs, _), token in zip(steps, output.tokens, strict=True))
            assert output.score == pytest.approx(score, abs=1e-3)
            searched += [asked for _, asked in steps]
    assert set(searched) == {True, False}


def test_entries_of_a_pruned_datastore_are_followed(skip_store, tmp_path):
    """The entry after an entry need not be the next token of its sentence there."""
    store = skip_store.prune(tmp_path / "small", "ngram", 0.7)
    skip_half(store, store.load_model(device="cpu"))
    places, (sentences, positions) = store.places(np.arange(-1, len(store))), store.locate(np.arange(-1, len(store)))
    assert places[0] == -1
    assert places[1:].tolist() == (store.targets.offsets[sentences] + positions)[1:].tolist()
    assert store.targets.items[places[1:]].tolist() == store.values.items.tolist()
    translator = Translator(store, device="cpu", combiner="fixed")
    options, searched = SETTINGS | {"beam_size": 1}, []
    for source, output in zip(SOURCES, translator.translate(SOURCES, **options), strict=True):
        slow = SlowDecoder(translator, source, options)
        steps = [slow.step(output.tokens[:place]) for place in range(len(output.tokens))]
        assert [int(log_probs.argmax()) for log_probs, _ in steps] == list(output.tokens)
        searched += [asked for _, asked in steps]
    assert set(searched) == {True, False}


def test_only_the_rows_that_need_it_are_searched(translator, monkeypatch):
    options = SETTINGS | {"beam_size": 1}
    outputs = translator.translate(SOURCES[:4], **options)
    wanted = 0
    for output in outputs:
        slow = SlowDecoder(translator, output.source, options)
        wanted += sum(slow.step(output.tokens[:place])[1] for place in range(len(output.tokens)))
    kind, rows = type(translator.decoder.retriever(translator.decoder.settings())), []
    retrieve = kind.retrieve
    monkeypatch.setattr(
        kind, "retrieve", lambda self, keys, *rest: rows.append(len(keys)) or retrieve(self, keys, *rest)
    )
    assert translator.translate(SOURCES[:4], **options) == outputs
    assert sum(rows) == wanted < sum(len(output.tokens) for output in outputs)


def test_likelihood_uses_the_same_rows(translator, number_corpus):
    pairs = [line.split("\t") for line in number_corpus.read_text().splitlines()[:12]]
    others = [*pairs[5:], *pairs[:5]]  # what is stored finds itself, and is searched nearly always
    references = translator.references([source for source, _ in pairs], [target for _, target in others])
    asked, _ = translator.settings(SETTINGS)
    [predictions] = predict(translator.decoder, references, [asked])
    wanted = []
    for reference in references:
        slow = SlowDecoder(translator, reference.source.text, SETTINGS)
        wanted.append([slow.step(list(reference.target[:place]))[1] for place in range(len(reference.target))])
    [batch] = {tuple(numbers) for numbers, _ in predict_batches(translator.decoder, references, [asked])}
    assert (~predictions.neighbours.empty).tolist() == [each for number in batch for each in wanted[number]]
    assert {each for one in wanted for each in one} == {True, False}


def test_a_saved_network_says_the_same(tmp_path):
    torch.manual_seed(0)
    network = SkipNetwork(0.5, 3.0).eval()
    best, features = -3 * torch.rand(200), torch.rand(200, FEATURES)
    network.threshold = torch.tensor(0.25)
    network.save(tmp_path / "skip.safetensors")
    loaded = SkipNetwork.load(tmp_path / "skip.safetensors")
    assert torch.equal(loaded(best, features), network(best, features))
    assert (loaded.threshold.item(), loaded.distances.tolist()) == (0.25, [0.5, 3.0])


def test_a_new_network_skips_nothing(skip_store):
    skipping = Skipping(SkipNetwork().eval(), skip_store)
    for parents in (np.array([-1, -1]), np.array([0, 0, 1]), np.array([2, -1, 0])):  # one enters at the last step
        rows = len(parents)
        log_probs = torch.randn(rows, 61).log_softmax(dim=1)
        best, of = log_probs.amax(dim=1), partial(log_probs.gather, 1)
        assert skipping.needed(parents, torch.ones(rows, dtype=torch.int64), best, of).all()
        skipping.found(torch.ones(rows, dtype=torch.bool), Neighbours.none(rows, 4))


@given(st.lists(st.integers(1, 6), min_size=1, max_size=5))
def test_rows_come_position_by_position(lengths):
    names = [(sentence, position) for sentence, length in enumerate(lengths) for position in range(length)]
    before, seen = [], []
    for position, (rows, parents) in enumerate(position_by_position(lengths)):
        here = [names[row] for row in rows.tolist()]
        assert here == [name for name in names if name[1] == position]
        assert (parents < 0).all() == (position == 0)
        if position:
            assert [before[place] for place in parents.tolist()] == [(sentence, position - 1) for sentence, _ in here]
        before = here
        seen += here
    assert sorted(seen) == names


@pytest.fixture
def copied(skip_store, tmp_path):
    return Datastore(shutil.copytree(skip_store.path, tmp_path / "store"))


def no_distances(path):
    weights = load_file(path)
    del weights["distances"]
    save_weights(path, weights, {})


def another_shape(path):
    save_weights(path, load_file(path) | {"hidden.weight": torch.zeros(3, 3)}, {})


def without_description(path):
    save_file(load_file(path), path)


def first_half(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def scalar_distances(path):
    save_weights(path, load_file(path) | {"distances": torch.tensor(1.0)}, {})


def folder(path):
    path.unlink()
    path.mkdir()


DAMAGE = {
    "missing": (lambda path: path.unlink(), "are missing"),
    "empty": (lambda path: path.write_bytes(b""), "holds no weights"),
    "cut": (first_half, "holds no weights"),
    "a folder": (folder, "holds no weights"),
    "no description": (without_description, "does not say what its weights are for"),
    "a weight is missing": (no_distances, "holds other weights"),
    "a weight of another kind": (scalar_distances, "holds other weights"),
    "a weight of another shape": (another_shape, "holds other weights"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_weights_are_one_sentence(knn_seq, copied, tmp_path, damage):
    path = skip_path(copied)
    do, sentence = DAMAGE[damage]
    do(path)
    (tmp_path / "in.txt").write_text("5 6 7\n")
    code, out, err = knn_seq("translate", copied.path, "--input", tmp_path / "in.txt", "--skip", "learned", "-q")
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert sentence in err
    assert str(path) in err
    assert "train" in err
    code, _, err = knn_seq("translate", copied.path, "--input", tmp_path / "in.txt", "-q")
    assert code == 0, err  # it is read only if it is asked for


def test_a_datastore_without_training_is_one_sentence(knn_seq, number_store, tmp_path):
    (tmp_path / "in.txt").write_text("5 6 7\n")
    options = ("--input", tmp_path / "in.txt", "--skip", "learned", "-q")
    code, out, err = knn_seq("translate", number_store.path, *options)
    assert (code, out) == (2, "")
    assert err == (
        "knn-seq: Nothing was trained that could say which searches to skip: "
        f"run `knn-seq train {number_store.path}`.\n"
    )
    with pytest.raises(KnnSeqError, match="Nothing was trained"):
        Translator(number_store, device="cpu", skip="learned").translate("5 6 7")
    assert Translator(number_store, device="cpu", skip="learned").translate("5 6 7", weight=0).tokens


def test_other_words_are_refused(knn_seq, translator):
    with pytest.raises(InvalidSetting, match="Skip must be learned, not always"):
        translator.translate("5", skip="always")
    code, _, err = knn_seq("translate", translator.store.path, "--skip", "always")
    assert code == 2
    assert "invalid choice: 'always'" in err


def test_a_translation_memory_skips_nothing(save_model, number_corpus):
    given = {"translation_memory": number_corpus, "model": save_model(), "device": "cpu", "max_length": LENGTH}
    for combiner in ("learned", "distance"):
        with pytest.raises(KnnSeqError, match="leave --skip out"):
            Translator(combiner=combiner, skip="learned", **given).translate(SOURCES[0])


def test_a_combiner_of_another_name_skips_with_what_was_trained(copied):
    learned = SkipNetwork.load(skip_path(copied))
    for options in ({"combiner": "distance"}, {"retriever": "subset", "combiner": "fixed"}, {"combiner": "learned"}):
        decoder = Translator(copied, device="cpu", skip="learned", **options).decoder
        [reference] = Translator(copied, device="cpu").references(["5 6"], ["7 8"])
        batch = decoder.batch([reference.source], decoder.settings())
        assert torch.equal(batch.skipping.network.threshold, learned.threshold)
        assert torch.equal(batch.skipping.network.hidden.weight, learned.hidden.weight)


def test_a_file_outside_of_the_folder_is_refused(knn_seq, copied, tmp_path):
    manifest = copied.path / "datastore.json"
    written = manifest.read_text()
    name = skip_path(copied).name
    shutil.copy(skip_path(copied), tmp_path / "skip.safetensors")
    for other in ("../../skip.safetensors", str(tmp_path / "skip.safetensors"), "..", ""):
        manifest.write_text(written.replace(f'"{name}"', f'"{other}"'))
        code, out, err = knn_seq("info", copied.path)
        assert (code, out, err.count("\n")) == (2, "", 1), (other, err)
        assert "'combiners.full/learned.skip_file'" in err
        with pytest.raises(DamagedFile):
            Datastore(copied.path)
