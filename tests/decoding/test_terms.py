"""Binding terms in the output of every kind of model, however it searches."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import DECODER_ONLY, END, NETWORKS, make_model, number_store_of

from knn_seq import Glossary, Term, Translator
from knn_seq.decoding.due_terms import DueTerms, TermTokens
from knn_seq.decoding.term_attention import TermAttention
from knn_seq.decoding.term_places import TermPlaces
from knn_seq.decoding.term_row import PUSHED, Begun, TermRow, TermState, mix
from knn_seq.glossary import Occurrence
from knn_seq.models import Source, load_model
from knn_seq.models.ensemble import Ensemble
from knn_seq.models.search import Distribution
from knn_seq.settings import ModelSettings

SOURCES = ["9 10 11 12 13", "14 15 16", "20 21", "22 9 23 9 24", "30 31 32 33"]
# Sources 0 and 3 have the first, 3 twice; 1 the second, of three pieces; 2 the third, with a form.
TERMS = [Term("9", "41"), Term("15 16", "50 51 52"), Term("20", "45 46", target_forms=("47 48",))]
MODES = {"greedy": {"beam_size": 1}, "beam": {"beam_size": 4}, "sampling": {"sample": True, "seed": 2}}


@pytest.fixture(scope="module")
def translators(tmp_path_factory):
    """A translator for each tiny model, with a datastore."""
    made = {}

    def make(kind):
        if kind not in made:
            model = make_model(kind)
            store = number_store_of(model, tmp_path_factory.mktemp(kind))
            made[kind] = Translator(store, model, max_length=24, k=4, temperature=20.0, combiner="fixed")
        return made[kind]

    return make


def require_terms(translations):
    assert all(term.applied for translation in translations for term in translation.terms)
    assert [len(translation.terms) for translation in translations] == [1, 1, 1, 2, 0]
    texts = [f" {translation} " for translation in translations]
    assert " 41 " in texts[0]
    assert " 50 51 52 " in texts[1]
    assert " 45 46 " in texts[2] or " 47 48 " in texts[2]
    assert texts[3].split().count("41") >= 2


@pytest.mark.parametrize("weight", [0.0, 0.4])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", NETWORKS)
def test_terms_are_in_the_output(kind, mode, weight, translators):
    translator = translators(kind)
    options = {"weight": weight, **MODES[mode]}
    plain = translator.translate(SOURCES, **options)
    bound = translator.translate(SOURCES, glossary=TERMS, **options)
    require_terms(bound)
    assert all(not translation.terms for translation in plain)
    if mode != "sampling":  # what is drawn for one sentence depends on all others
        assert bound[4].tokens == plain[4].tokens
        assert math.isclose(bound[4].score, plain[4].score, abs_tol=1e-5)


@pytest.mark.parametrize("kind", ["marian", "llama"])
def test_batches_of_any_size_have_them(kind, translators):
    for size in (1, 2, 5):
        require_terms(translators(kind).translate(SOURCES, glossary=TERMS, batch_size=size))


@pytest.mark.parametrize("options", MODES.values(), ids=list(MODES))
def test_without_a_term_nothing_changes(translators, options):
    translator = translators("marian")
    other = translator.translate(SOURCES, glossary={"59": "58"}, **options)
    for one, plain in zip(other, translator.translate(SOURCES, **options), strict=True):
        assert (one.tokens, one.score, one.terms) == (plain.tokens, plain.score, [])


def test_all_outputs_of_a_sentence_say_which_terms_they_have(translators):
    best = translators("marian").translate(SOURCES[0], glossary=TERMS, beam_size=4, nbest=4)
    assert len(best.alternatives) == 3
    for output in (best, *best.alternatives):
        assert [term.applied for term in output.terms] == [" 41 " in f" {output} "]


def test_what_is_forbidden_stays_out(translators):
    translator = translators("marian")
    for mode in ("greedy", "beam"):
        plain = translator.translate(SOURCES[0], weight=0.0, **MODES[mode])
        words = list(dict.fromkeys(plain.split()))[:2]
        bound = translator.translate(
            SOURCES[0], glossary=[Term("9", "", forbidden=tuple(words))], weight=0.0, **MODES[mode]
        )
        assert not set(words) & set(bound.split())
        assert [term.applied for term in bound.terms] == [True]


def test_a_term_that_the_length_leaves_no_space_for_is_missing(translators):
    bound = translators("marian").translate(SOURCES[1], glossary=TERMS, max_length=2)
    assert [(term.source, term.target, term.applied) for term in bound.terms] == [("15 16", "50 51 52", False)]


def test_an_ensemble_has_them(translators, tmp_path):
    translator = translators("marian")
    model = Ensemble([translator.model, make_model("marian", seed=1)])
    together = Translator(translator.store, model, max_length=24, glossary=TERMS, weight=0.0)
    require_terms(together.translate(SOURCES))


def test_the_datastores_own_glossary_is_used_unless_another_is_given(translators, tmp_path, knn_seq):
    store = number_store_of(make_model("marian"), tmp_path)
    (tmp_path / "terms.tsv").write_text("9\t41\n")
    assert knn_seq("glossary", store.path, "import", tmp_path / "terms.tsv")[0] == 0
    translator = Translator(store.path, make_model("marian"), max_length=24, weight=0.0)
    assert "41" in translator.translate(SOURCES[0]).split()
    assert "42" in translator.translate(SOURCES[0], glossary={"9": "42"}).split()
    assert translator.translate(SOURCES[0], glossary={}).terms == []
    assert Translator(store.path, make_model("marian"), glossary={}).translate(SOURCES[0]).terms == []


def test_the_command_takes_a_glossary(number_store, tmp_path, knn_seq):
    (tmp_path / "in.txt").write_text("".join(f"{source}\n" for source in SOURCES))
    (tmp_path / "terms.tsv").write_text("source\ttarget\n9\t41\n")
    files = ("--input", tmp_path / "in.txt", "--output", tmp_path / "out.txt", "--glossary", tmp_path / "terms.tsv")
    code, _, error = knn_seq("translate", number_store.path, *files, "--max-length", "24", "--quiet")
    assert (code, error) == (0, "")
    lines = [line.split() for line in (tmp_path / "out.txt").read_text().splitlines()]
    assert [line.count("41") >= wanted for line, wanted in zip(lines, (1, 0, 0, 2, 0), strict=True)] == [True] * 5
    code, _, error = knn_seq("translate", number_store.path, *files[:4], "--glossary", tmp_path / "none.tsv")
    assert code == 2
    assert "none.tsv" in error


def test_the_command_applies_a_glossary_to_files(number_store, tmp_path, knn_seq):
    (tmp_path / "in.txt").write_text("x 9 10 11\n")  # numbers alone are no text
    (tmp_path / "terms.tsv").write_text("9\t41\n")
    options = ("--output", tmp_path / "out.txt", "--glossary", tmp_path / "terms.tsv", "--max-length", "24")
    code, _, error = knn_seq("translate", number_store.path, tmp_path / "in.txt", *options, "--no-exact-matches")
    assert code == 0, error
    assert "41" in (tmp_path / "out.txt").read_text().splitlines()[0].split()
    assert "1 term applied" in error


@pytest.fixture(scope="module")
def firefox(tmp_path_factory):
    model = load_model(ModelSettings("firefox:pt-en", device="cpu"))
    memory = [("A casa é grande.", "The house is large."), ("O altar é de pedra.", "The altar is of stone.")]
    return Translator(model=model, translation_memory=memory, weight=0.0)


@pytest.mark.parametrize("beams", [1, 4])
def test_the_firefox_model_writes_them_where_its_own_words_stood(firefox, beams):
    glossary = {"sacerdote": "clergyman", "altar": "shrine", "casa": "dwelling"}
    texts = ["O sacerdote viu o altar.", "Sacerdotes, vinde ao ALTAR!", "O jardim é pequeno.", "Casa e casa."]
    bound = firefox.translate(texts, glossary=glossary, beam_size=beams)
    assert bound[0] == "The clergyman saw the shrine."
    assert bound[1].startswith("Clergym")
    assert "SHRINE" in bound[1]
    assert bound[2] == firefox.translate(texts, beam_size=beams, glossary={})[2]
    assert bound[3].casefold().count("dwelling") == 2
    assert all(term.applied for translation in bound for term in translation.terms)


def test_a_sentence_that_has_its_terms_anyway_stays_as_it_is(firefox):
    sources = ["O nível de referência dos valores.", "A casa é grande e o altar é de pedra."]
    plain = firefox.translate(sources, beam_size=1)
    terms = {"nível": "level", "referência": "reference", "altar": "altar", "casa": "house"}
    bound = firefox.translate(sources, beam_size=1, glossary=terms)
    assert [one.tokens for one in bound] == [one.tokens for one in plain]
    assert all(term.applied for one in bound for term in one.terms)


def test_an_inflected_form_that_the_model_writes_is_left_alone(firefox):
    text = "As casas são grandes."
    assert firefox.translate(text, glossary={"casa": "house"}, beam_size=1) == firefox.translate(
        text, beam_size=1, glossary={}
    )


def test_spans_are_the_source_tokens_of_a_term(firefox):
    tokens = TermTokens(firefox.model.tokenizer)
    finder = Glossary([Term("sacerdote", "priest"), Term("jardim grande", "large garden")]).finder("pt", "en")
    sources, _ = firefox.read(["O sacerdote viu o jardim grande.", "Nada."])
    due = tokens.due(sources, finder)
    assert due[1] is None
    pieces = ["".join(map(firefox.model.tokenizer.token, sources[0].tokens[begin:end])) for begin, end in due[0].spans]
    assert pieces == ["▁sacerdote", "▁jardim▁grande"]


def test_pieces_depend_on_what_stands_before(firefox):
    tokens, decode = TermTokens(firefox.model.tokenizer), firefox.model.tokenizer.decode
    before = firefox.model.tokenizer.encode_targets(["see ("])[0][:-1]
    assert decode([*before, *tokens.pieces("offering", "(", False)]) == "see (offering"
    word = firefox.model.tokenizer.encode_targets(["the"])[0][:-1]
    assert decode([*word, *tokens.pieces("offering", " ", False)]) == "the offering"
    assert decode(tokens.pieces("offering", "", True)) == "Offering"


@given(
    st.lists(st.floats(-20, 0), min_size=3, max_size=8),
    st.sets(st.integers(0, 2), min_size=1),
    st.floats(0.1, 0.999),
    st.booleans(),
)
def test_a_mixture_is_the_formulas(logits, tokens, share, impossible):
    log_probs = torch.log_softmax(torch.tensor(logits, dtype=torch.float64), dim=0)
    tokens = sorted(tokens)
    if impossible and len(tokens) < len(logits):
        log_probs[tokens] = -torch.inf
    p = log_probs.exp()
    pieces = torch.zeros_like(p)
    pieces[tokens] = p[tokens] / p[tokens].sum() if p[tokens].sum() else 1 / len(tokens)
    distribution = Distribution.of_log_probs(torch.stack([log_probs, log_probs]))
    mix(distribution, 1, tokens, share)
    torch.testing.assert_close(distribution.log_probs.exp(), torch.stack([p, share * pieces + (1 - share) * p]))


def test_decoder_only_models_have_no_spans_to_look_at(translators):
    for kind in DECODER_ONLY:
        model = translators(kind).model
        assert model.attention_hook is None
        due = TermTokens(model.tokenizer).due([Source("9 10", [9, 10, END])], Glossary(TERMS).finder())
        assert due[0].spans == [(0, 1)]


@given(
    st.lists(st.sets(st.integers(0, 9), max_size=6), min_size=1, max_size=4),
    st.lists(st.integers(0, 3), min_size=1, max_size=6),
    st.integers(0, 99),
)
def test_attention_is_summed_up_over_the_words_of_terms(bounds, sentences, seed):
    length, least = 9, 0.3
    spans = [list(zip(sorted(its)[::2], sorted(its)[1::2], strict=False)) for its in bounds]
    due = [DueTerms([Occurrence((Term("a", "b"),), 0, 1, "a")] * len(its), None, its, False) for its in spans]
    sentences = [sentence % len(due) for sentence in sentences]
    attention = torch.rand(len(sentences), length, generator=torch.Generator().manual_seed(seed)).softmax(dim=1)
    wanted = [
        (row, number)
        for row, sentence in enumerate(sentences)
        for number, (begin, end) in enumerate(due[sentence].spans)
        if attention[row, begin:end].sum() >= least
    ]
    assert TermAttention(due).looks(sentences, attention, least) == wanted


def decoded_terms(firefox, glossary, text):
    finder = Glossary([Term(*pair) for pair in glossary.items()]).finder("pt", "en")
    [source] = firefox.read([text])[0]
    tokens = TermTokens(firefox.model.tokenizer)
    return source, tokens, tokens.due([source], finder)[0]


@pytest.mark.parametrize(
    ("best", "follows"),
    [("ers", "▁house"), ("s", "s"), ("▁of", "▁of")],
)
@pytest.mark.parametrize("choices", [1, 4])
def test_a_term_is_not_continued_to_another_word(firefox, best, follows, choices):
    _, tokens, due = decoded_terms(firefox, {"altar": "shrine"}, "O altar é de pedra.")
    ids = {firefox.model.tokenizer.token(number): number for number in range(firefox.model.vocabulary_size)}
    term = tokens.pieces("shrine", " ", False)
    prefix = (ids["▁the"], *term)
    log_probs = torch.full((1, firefox.model.vocabulary_size), -20.0)
    log_probs[0, ids["▁house"]] = -2.0
    log_probs[0, ids[best]] = -1.0
    distribution = Distribution.of_log_probs(log_probs)
    state = TermState(tokens, frozenset([0]), strict=False, choices=choices)
    complete = tokens.trie(due.occurrences[0], " ", False).after(term)
    begun = Begun(complete, 0, PUSHED, 1, pushed=True)
    TermRow(state, distribution, 0, prefix, 0, due).follow({(0, prefix): begun})
    assert firefox.model.tokenizer.token(distribution.best_token(0)) == follows
    if follows == "s":  # what has an ending gets no second one
        log_probs[0, ids["ed"]] = 0.0
        longer = (*prefix, ids["s"])
        TermRow(state, distribution, 0, longer, 0, due).follow(state.following | {(0, longer): begun})
        [begun] = [each for each in state.following.values() if each.inflected] or [begun]
        TermRow(state, distribution, 0, longer, 0, due).follow({(0, longer): begun})
        assert firefox.model.tokenizer.token(distribution.best_token(0)) != "ed"


@pytest.mark.parametrize(("looked_at", "place"), [("altar", 4), ("o", 3), ("sacerdote", 1)])
def test_a_term_goes_where_its_words_or_those_around_were_looked_at(firefox, looked_at, place):
    source, tokens, due = decoded_terms(firefox, {"altar": "shrine"}, "O sacerdote viu o altar.")
    tokenizer = firefox.model.tokenizer
    written = tokenizer.encode_targets(["The priest saw the old."])[0][:-1]
    assert [tokenizer.token(token) for token in written] == ["▁The", "▁priest", "▁saw", "▁the", "▁old", "."]
    pieces = [tokenizer.token(token).strip("▁") for token in source.tokens]
    attention = np.zeros((len(written) + 1, len(source.tokens)), dtype=np.float32)
    attention[:, -1] = 1.0  # at the end of the source
    attention[place] = 0.0
    attention[place, pieces.index(looked_at)] = 1.0
    places = TermPlaces(firefox.model, tokens, source, written, attention, source.tokens[-1])
    assert places.best(due, 0, range(len(written) + 1)) == place


def test_a_term_that_was_never_looked_at_does_not_stand_behind_the_end(firefox):
    text = "Não seja envergonhado nenhum dos que em ti esperam; envergonhados sejam os que sem causa procedem."
    bound = firefox.translate(text, glossary={"envergonhado": "ashamed"}, beam_size=1)
    assert bound.casefold().count("ashamed") == 2
    assert not bound.casefold().rstrip(".").endswith("ashamed")
