"""Translation with chat models: the prompt, its end, examples in it, and neighbours beside it."""

from __future__ import annotations

import json

import pytest
from language_models import CHAT_TEMPLATE, byte_tokenizer, translated_sentences

from knn_seq import Datastore, Translator
from knn_seq.errors import InvalidSetting
from knn_seq.explain import explain
from knn_seq.models import load_model
from knn_seq.models.answer import clean_answer
from knn_seq.models.languages import language_name
from knn_seq.models.prompt import PromptTokenizer
from knn_seq.sentences.shots import longest_prompt
from knn_seq.settings import ModelSettings

LANGUAGES = {"source_lang": "pt_BR", "target_lang": "en"}
TERMS = {"a letter": "three coins", "the river": "an answer"}  # what this domain says instead
SHOTS = 2
INSTRUCTION = "Translate from Portuguese to English."
NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + CHAT_TEMPLATE
SILENT_SYSTEM = CHAT_TEMPLATE.replace("in messages %}", "in messages if m.role != 'system' %}")


def in_domain(target):
    for word, term in TERMS.items():
        target = target.replace(word, term)
    return target


@pytest.fixture(scope="module")
def domain():
    """Pairs of a domain with words of its own: to store, and to translate."""
    pairs = [(source, in_domain(target)) for source, target in translated_sentences()]
    return [pair for number, pair in enumerate(pairs) if number % 4], pairs[::4]


@pytest.fixture(scope="module")
def stores(tmp_path_factory, chat_model, domain):
    """A datastore with prompts without examples, and one with two of them."""
    folder = tmp_path_factory.mktemp("chat")
    (folder / "train.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in domain[0]))
    options = {"index_recipe": "Flat", "key_dtype": "float32", "prompt": "chat", "combiner": "fixed", **LANGUAGES}
    return [
        Datastore.build(folder / str(shots), chat_model, folder / "train.tsv", shots=shots, **options)
        for shots in (0, SHOTS)
    ]


@pytest.fixture(scope="module")
def translators(stores):
    return [Translator(store, device="cpu", max_length=24, beam_size=1) for store in stores]


def right(outputs, pairs):
    return sum(output == target for output, (_, target) in zip(outputs, pairs, strict=True)) / len(pairs)


def test_the_model_translates_and_neighbours_bring_the_words_of_the_domain(translators, domain):
    zero, few = translators
    sources = [source for source, _ in domain[1]]
    general = [(source, target) for source, target in translated_sentences()][::4]
    assert right(zero.translate(sources, weight=0.0), general) > 0.9
    assert right(zero.translate(sources, weight=0.0), domain[1]) < 0.8
    assert right(zero.translate(sources), domain[1]) > 0.9
    assert right(few.translate(sources), domain[1]) > 0.9


@pytest.mark.parametrize("options", [{}, {"weight": 0.0}, {"beam_size": 4}, {"pointers": 2}])
def test_batch_and_single_agree(translators, domain, options):
    sources = [*[source for source, _ in domain[1]][:8], "o gato", domain[1][3][0] + " e " + domain[1][4][0]]
    for translator in translators:
        together = translator.translate(sources, **options)
        alone = translator.translate(sources, batch_size=1, **options)
        assert together == alone
        assert [one.score for one in together] == pytest.approx([one.score for one in alone], abs=1e-3)


def test_the_prompt_is_the_templates_with_a_system_message(translators):
    tokenizer = translators[0].model.tokenizer
    [tokens] = tokenizer.encode_sources(["o gato vê o rio"])
    text = tokenizer.tokenizer.decode(tokens)
    assert text.startswith("<|im_start|>system\nYou are a professional translator. " + INSTRUCTION)
    assert text.endswith("<|im_start|>user\no gato vê o rio<|im_end|>\n<|im_start|>assistant\n")


def test_an_output_ends_where_the_template_ends_an_answer(translators, stores):
    model = translators[0].model
    end = model.tokenizer.tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert model.tokenizer.end == end != model.tokenizer.tokenizer.eos_token_id
    assert end in model.end_tokens
    output = translators[0].translate("o gato vê o rio")
    assert output.tokens[-1] == end
    assert end not in output.tokens[:-1]
    for store in stores:
        assert all(target[-1] == end for target in store.values)


def test_only_answers_are_stored(stores, domain):
    for store in stores:
        tokenizer = store.load_model(device="cpu").tokenizer
        for target, (_, text) in zip(store.values, domain[0], strict=True):
            assert tokenizer.tokenizer.decode(target) == f"{text}<|im_end|>"
        assert len(store.keys) == len(store.values.items)


@pytest.mark.parametrize("by", ["bm25", "encoder"])
def test_examples_are_really_in_the_prompt(translators, domain, by):
    few = translators[1]
    source = domain[1][2][0]
    search = few.settings({"shots": 3, "shots_by": by})[0]
    [read], _ = few.read([source], search)
    tokenizer = few.model.tokenizer
    messages = tokenizer.tokenizer.decode(read.tokens).split("<|im_start|>")[1:]
    roles = [message.partition("\n")[0] for message in messages]
    assert roles == ["system", *["user", "assistant"] * 3, "user", "assistant"]
    texts = [message.partition("\n")[2].removesuffix("\n").removesuffix("<|im_end|>") for message in messages]
    shown = list(zip(texts[1:-2:2], texts[2:-2:2], strict=True))
    assert texts[-2] == source
    assert all(pair in domain[0] for pair in shown)
    if by == "bm25":  # the most similar one, which shares most words, stands last

        def shared(pair):
            return len(set(pair[0].split()) & set(source.split()))

        assert shared(shown[-1]) == max(map(shared, domain[0])) > 1
    plain, _ = few.read([source], few.settings({"shots": 0})[0])
    assert [shown] == few._shots[by].examples(plain, 3)


def test_keys_are_made_with_the_same_prompt_shape(stores, domain):
    zero, few = stores
    tokenizer = few.load_model(device="cpu").tokenizer.tokenizer
    for number, (source, target) in enumerate(domain[0]):
        text = tokenizer.decode(few.sources[number])
        assert text.count("<|im_start|>user") == SHOTS + 1
        assert text.count(f"{source}<|im_end|>\n<|im_start|>assistant\n{target}") == 0  # it is no example for itself
        assert tokenizer.decode(zero.sources[number]).count("<|im_start|>user") == 1
    assert few.manifest.build.shots == SHOTS


def test_neighbours_are_in_the_mixture(translators, domain):
    few = translators[1]
    source = next(source for source, _ in domain[1] if "uma carta" in source)
    output = few.translate(source)
    assert output.endswith("three coins")
    assert few.translate(source, weight=0.0, shots=0).endswith("a letter")
    [explanation] = explain(few, [output])
    assert explanation.log_probability == pytest.approx(output.score, abs=1e-3)
    changed = [token for token in explanation.tokens if token.changed]
    assert changed
    assert all(neighbour.sentence < len(domain[0]) for token in changed for neighbour in token.neighbours)


def test_long_prompts_lose_examples_and_never_the_source(translators, domain, monkeypatch):
    few = translators[1]
    source = domain[1][0][0]
    [zero], _ = few.read([source], few.settings({"shots": 0})[0])
    [one], _ = few.read([source], few.settings({"shots": 1})[0])
    [three], _ = few.read([source], few.settings({"shots": 3})[0])
    monkeypatch.setattr("knn_seq.translator.longest_prompt", lambda model: len(one.tokens) + 2)
    [cut], [source_cut] = few.read([source], few.settings({"shots": 3})[0])
    assert len(zero.tokens) < len(cut.tokens) < len(three.tokens)
    assert cut.tokens == one.tokens  # the most similar one stays
    assert not source_cut
    monkeypatch.setattr("knn_seq.translator.longest_prompt", lambda model: 3)
    [cut], _ = few.read([source], few.settings({"shots": 3})[0])
    assert cut.tokens == zero.tokens
    assert longest_prompt(few.model) == few.model.max_length


def test_evaluate_compares_zero_shot_shots_neighbours_and_both(stores, domain, tmp_path, knn_seq):
    (tmp_path / "test.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in domain[1][:12]))
    command = ("evaluate", stores[1].path, "--test", tmp_path / "test.tsv", "--stored", "0", "--beam-size", "1")
    code, out, err = knn_seq(*command, "--max-length", "24", "-q", "--json", tmp_path / "found.json")
    assert code == 0, err
    systems = {each["name"]: each for each in json.loads((tmp_path / "found.json").read_text())["systems"]}
    assert list(systems) == ["base", "shots", "knn", "both"]
    assert systems["base"]["bleu"] < systems["both"]["bleu"]
    assert systems["base"]["settings"] == {"weight": 0.0, "shots": 0}
    assert (systems["shots"]["settings"]["weight"], systems["knn"]["settings"]["shots"]) == (0.0, 0)
    assert [line.split()[0] for line in out.splitlines()[1:5]] == list(systems)


def test_commands(tmp_path, chat_model, domain, knn_seq):
    (tmp_path / "train.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in domain[0][:20]))
    build = ("build", tmp_path / "store", "--model", chat_model, "--corpus", tmp_path / "train.tsv", "-q")
    languages = ("--source-lang", "pt", "--target-lang", "en")
    code, _, err = knn_seq(*build, *languages, "--prompt", "chat", "--shots", "2", "--shots-by", "encoder")
    assert code == 0, err
    assert "2 by encoder" in knn_seq("info", tmp_path / "store")[1]
    (tmp_path / "in.txt").write_text("o gato vê o rio\n")
    for options in ((), ("--shots", "0"), ("--shots", "3", "--shots-by", "bm25", "--weight", "0")):
        code, out, err = knn_seq("translate", tmp_path / "store", "--input", tmp_path / "in.txt", "-q", *options)
        assert code == 0, err
        assert out.startswith("the cat sees")
        assert len(out.splitlines()) == 1
    code, _, err = knn_seq(*build, *languages, "--prompt", "chat")
    assert code == 2
    assert "another number of examples" in err


@pytest.mark.parametrize("template", [NO_SYSTEM, SILENT_SYSTEM])
def test_a_template_without_system_messages_gets_the_instruction_elsewhere(template):
    tokenizer = byte_tokenizer(["a b c"], chat=True)
    tokenizer.chat_template = template
    prompted = PromptTokenizer(tokenizer, ModelSettings("tiny", prompt="chat", **LANGUAGES))
    [tokens] = prompted.encode_with_shots(["o gato"], [[("a", "b")]], None)
    text = tokenizer.decode(tokens)
    assert text.count(INSTRUCTION) == 1
    assert "<|im_start|>system" not in text
    assert text.index(INSTRUCTION) < text.index("<|im_start|>assistant\nb") < text.index("o gato")


def test_a_template_of_ones_own_has_examples_before_it():
    tokenizer = byte_tokenizer(["a b c"])
    prompted = PromptTokenizer(tokenizer, ModelSettings("tiny", prompt="{source} =>"))
    [tokens] = prompted.encode_with_shots(["o gato"], [[("um", "one"), ("dois", "two")]], None)
    assert tokenizer.decode(tokens) == "um => one\n\ndois => two\n\no gato =>"


def test_what_cannot_be_is_refused(save_model, number_store):
    with pytest.raises(InvalidSetting, match="no chat template"):
        load_model(ModelSettings(save_model("gpt2"), prompt="chat", device="cpu"))
    with pytest.raises(InvalidSetting, match="--shots"):
        Translator(number_store, device="cpu").translate("5", shots=2)
    with pytest.raises(InvalidSetting, match="Shots must be at least 0"):
        Translator(number_store, device="cpu", shots=-1)


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        (" The cat. ", "The cat."),
        ("The cat.\n\nNote: this is literal.", "The cat."),
        ("<think>\nHmm, gato is cat.\n</think>\n\nThe cat.", "The cat."),
        ("<think>\nIt was cut", ""),
        ("Here is the translation:\n\nThe cat.\n\nIt is literal.", "The cat."),
        ("English: The cat.", "English: The cat."),  # it may be the translation of a label
        ("The cat:", "The cat:"),
        ("", ""),
        ("\n", ""),
    ],
)
def test_an_answer_is_cleaned(written, wanted):
    assert clean_answer(written) == wanted


def test_languages_have_names():
    assert [language_name(code) for code in ("pt", "pt_BR", "zh-CN", "Portuguese", "xx", "por_Latn")] == [
        "Portuguese",
        "Portuguese",
        "Chinese",
        "Portuguese",
        "xx",
        "por_Latn",
    ]
