"""Shortlists of models that do not come with one: learned by a build, kept in the datastore, used when translating."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers
from tiny_models import DECODER_ONLY, END, NETWORKS, VOCABULARY, make_model, number_store_of

from knn_seq import Datastore, Term, Translator
from knn_seq.build.lexicon import learn_shortlist
from knn_seq.build.shortlist import add_shortlist
from knn_seq.decoding.stored_shortlist import open_shortlist, shortlist_path
from knn_seq.errors import DamagedFile, InvalidSetting, NotFound
from knn_seq.models import TokenPair
from knn_seq.models.shortlist import Shortlist
from knn_seq.settings import DecodingSettings
from knn_seq.storage.flat import open_flat

SOURCES = [[9, 10, 11, 12, END], [13, 14, END], [20, END], [30, 31, 32, 33, 34, 35, 36, END]]
TEXTS = ["9 10 11 12 13", "14 15 16", "20 21", "22 9 23 9 24"]
KINDS = sorted(set(NETWORKS) - DECODER_ONLY)


def few_tokens():
    """Each source token may become itself and two others; everything else the end and one more."""
    lists = [sorted({token, token * 7 % VOCABULARY, token * 11 % VOCABULARY}) for token in range(VOCABULARY)]
    offsets = np.cumsum([0, *map(len, lists)])
    return Shortlist(offsets, np.concatenate(lists), np.array([END, 5]), VOCABULARY)


def limited(model):
    model.settings, model.shortlist = replace(model.settings, shortlist=True), few_tokens()
    return model


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("kind", KINDS)
def test_each_step_is_a_softmax_over_the_sentence_s_own_shortlist(kind, dtype):
    model, complete = limited(make_model(kind, dtype=dtype)), make_model(kind, dtype=dtype)
    steps, others = [], torch.tensor([[4, 40, 58]])

    def look(step):
        steps.append(step.log_probs.clone())
        steps.append(step.log_probs_of(others.expand(len(step.queries), -1)))
        return steps[-2].clone()

    outputs = model.generate(SOURCES, DecodingSettings(beam_size=1, max_length=4), look)
    tolerance = {"float32": 1e-4, "int8": 0.2}[dtype]
    for number, (source, (best,)) in enumerate(zip(SOURCES, outputs, strict=True)):
        allowed = few_tokens().of(source)
        scored, own = complete.score([TokenPair(source, best.tokens)]), model.score([TokenPair(source, best.tokens)])
        for place in range(min(map(len, (output[0].tokens for output in outputs)))):  # all are under way
            shift = scored.log_probs[place, allowed].logsumexp(0)
            expected = torch.full((VOCABULARY,), -torch.inf)
            expected[allowed] = scored.log_probs[place, allowed] - shift
            torch.testing.assert_close(steps[2 * place][number], expected, atol=tolerance, rtol=1e-3)
            real = scored.log_probs[place, others[0]] - shift
            torch.testing.assert_close(steps[2 * place + 1][number], real, atol=tolerance, rtol=1e-3)
            torch.testing.assert_close(own.log_probs[place], scored.log_probs[place] - shift, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("kind", ["marian", "t5"])
def test_a_batch_writes_what_its_sentences_write_and_nothing_else(kind, beams):
    model, decoding = limited(make_model(kind)), DecodingSettings(beam_size=beams, max_length=8)
    alone = [model.generate([source], decoding)[0][0] for source in SOURCES]
    for size in (1, 2, 4):
        together = dict(model.generate_stream(SOURCES * 2, decoding, None, size))
        assert [together[number][0].tokens for number in range(8)] == [best.tokens for best in alone] * 2
    for source, best in zip(SOURCES, alone, strict=True):
        assert set(best.tokens) <= set(few_tokens().of(source).tolist())


def test_what_only_generate_searches_has_none():
    model = limited(make_model("marian"))
    config = transformers.GenerationConfig(max_new_tokens=4, num_beams=2, do_sample=True)
    with pytest.raises(InvalidSetting, match="leave out --shortlist"):
        model.generate(SOURCES, config)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A datastore that was built with a shortlist, and its model."""
    model = make_model("marian")
    model.settings = replace(model.settings, shortlist=True)
    return number_store_of(model, tmp_path_factory.mktemp("shortlist")), model


def unlimited():
    model = make_model("marian")
    model.settings = replace(model.settings, shortlist=True)
    return model


def test_a_build_learns_one_and_a_translator_uses_it(built):
    store, model = built
    expected = learn_shortlist(store.sources, store.targets, VOCABULARY, always=[END])
    for stored in (model.shortlist, open_shortlist(store, VOCABULARY)):
        assert all(np.array_equal(getattr(stored, part), getattr(expected, part)) for part in ("offsets", "targets"))
    translator = Translator(store, unlimited(), beam_size=2, max_length=9, weight=0.0)
    for text, output in zip(TEXTS, translator.translate(TEXTS), strict=True):
        allowed = set(expected.of([*map(int, text.split()), END]).tolist())
        assert set(output.tokens) <= allowed


def test_neighbours_and_terms_come_though_no_shortlist_has_them(built, tmp_path):
    store = Datastore(shutil.copytree(built[0].path, tmp_path / "store"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("knn_seq.build.shortlist.learn_shortlist", lambda *_, **__: few_tokens())
        add_shortlist(store, make_model("marian"))
    translator = Translator(store, unlimited(), max_length=12, k=4, temperature=20.0, combiner="fixed")
    allowed = [set(few_tokens().of([*map(int, text.split()), END]).tolist()) for text in TEXTS]
    with_neighbours = translator.translate(TEXTS, weight=0.9, beam_size=1)
    assert any(set(output.tokens) - its for output, its in zip(with_neighbours, allowed, strict=True))
    for beams in (1, 4):
        bound = translator.translate(
            TEXTS, weight=0.0, beam_size=beams, glossary=[Term("9", "58"), Term("15", "57 59")]
        )
        assert not {57, 58, 59} & (allowed[0] | allowed[1])
        assert all(term.applied for output in bound for term in output.terms)
        assert "58" in bound[0].split()
        assert "57 59" in bound[1]


def test_segments_that_are_added_and_deleted_pairs(built, tmp_path):
    store = Datastore(shutil.copytree(built[0].path, tmp_path / "store"))
    before = shortlist_path(store).read_bytes()
    store.add([("59 60", "58 4 58")], model=make_model("marian"))
    assert shortlist_path(store).read_bytes() == before  # it is learned again when that is asked for
    add_shortlist(store, make_model("marian"))
    assert {4, 58} <= set(open_shortlist(store, VOCABULARY).of([59]).tolist())


@pytest.mark.parametrize("damage", [b"", b"nonsense" * 100])
def test_a_damaged_one_says_what_to_do(built, tmp_path, damage):
    store = Datastore(shutil.copytree(built[0].path, tmp_path / "store"))
    shortlist_path(store).write_bytes(damage)
    with pytest.raises(DamagedFile):
        Translator(store, unlimited())
    with pytest.raises(DamagedFile, match="another model"):
        open_shortlist(built[0], VOCABULARY - 30)


def test_a_store_without_one_says_what_to_do(number_store):
    with pytest.raises(NotFound, match=r"has no shortlist: run `knn-seq index .* --shortlist`"):
        Translator(number_store, shortlist=True)


def test_a_model_without_an_encoder_has_none(tmp_path):
    model = make_model("gpt2" if "gpt2" in NETWORKS else "llama")
    with pytest.raises(InvalidSetting, match="models with an encoder"):
        add_shortlist(Datastore(number_store_of(model, tmp_path).path), model)
    model.settings = replace(model.settings, shortlist=True)
    with pytest.raises(InvalidSetting, match="models with an encoder"):
        Datastore.build(tmp_path / "other", model, tmp_path / "train.tsv")


def test_a_translation_memory_has_none():
    with pytest.raises(InvalidSetting, match="There is no shortlist for tiny:marian"):
        Translator(model=unlimited(), translation_memory=[("5 6", "7 8")])


def test_the_commands(knn_seq, number_store, number_corpus, save_model, tmp_path):
    store = shutil.copytree(number_store.path, tmp_path / "store")
    (tmp_path / "in.txt").write_text("5 6 7\n")
    translate = ("translate", store, "--input", tmp_path / "in.txt", "-q", "--max-length", 9, "--shortlist")
    code, _, err = knn_seq(*translate)
    assert (code, "has no shortlist" in err) == (2, True)
    code, out, err = knn_seq("index", store, "--shortlist", "-q")
    assert (code, "has a shortlist" in out) == (0, True), err
    assert knn_seq(*translate)[0] == 0
    again = ("build", tmp_path / "new", "--model", save_model(), "--corpus", number_corpus, "--shortlist", "-q")
    assert knn_seq(*again, "--combiner", "fixed")[0] == 0
    ours, theirs = (open_flat(folder / "shortlist.h5") for folder in (tmp_path / "new", store))
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
