"""Placeholders and inline tags survive, whatever the model writes."""

from __future__ import annotations

import random
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knn_seq.errors import InvalidSetting
from knn_seq.protect import Attention, Finder, Protector, Role, Tag, join
from knn_seq.protect.attention import best_stretch
from knn_seq.protect.content import paired, same_tags, tags_of

PLACEHOLDERS = re.split(
    " ",
    "%s %d %(name)s %1$s %% %-10.2f %1 {0} {} {{x}} {name:>3} ${x} $HOME &amp; &#160; [X12X] @VERSION@ \\n "
    "https://example.org/a?b=1 www.example.org someone@example.org <br/> <img/>",
)
PAIRS = [("<b>", "</b>"), ("<a href='x'>", "</a>"), ("<span class='k'>", "</span>"), ("<i>", "</i>")]
WORDS = [
    "casa",
    "Salvar",
    "o",
    "arquivo",
    "de",
    "100%",
    "não",
    "existe",
    "—",
    "3.5",
    ",",
    "File",
    "<arquivo>",
    "&",
    "%",
]


def adversary(name: str, seed: int):
    """A translate function that does not behave."""

    def translate(texts):
        generator = random.Random(seed)
        return [MISCHIEF[name](text, generator) for text in texts]

    return translate


def _shuffled(text, generator):
    words = text.split()
    generator.shuffle(words)
    return " ".join(words)


MISCHIEF = {
    "identity": lambda text, _: text,
    "nothing": lambda text, _: "",
    "upper": lambda text, _: text.upper(),
    "drop": lambda text, g: " ".join(word for word in text.split() if g.random() < 0.6),
    "duplicate": lambda text, g: " ".join(word for word in text.split() for _ in range(g.choice((1, 1, 2)))),
    "reorder": _shuffled,
    "mangle": lambda text, g: "".join(letter for letter in text if letter.isalnum() or g.random() < 0.7),
    "spaces": lambda text, _: " ".join(text),
    "invent": lambda text, g: f"{text} {g.choice(PLACEHOLDERS)} <b>new</b> X1X </i>",
    "newlines": lambda text, _: text.replace(" ", "\n"),
    "halves": lambda text, _: text[: len(text) // 2] + "%",
    "glue": lambda text, _: "%" + text.replace(" ", "") + "{",
}
words = st.sampled_from(WORDS)
placeholders = st.sampled_from(PLACEHOLDERS)


def nested(inner):
    def wrap(args):
        (opening, closing), parts = args
        return opening + " ".join(parts) + closing

    return st.tuples(st.sampled_from(PAIRS), st.lists(inner, min_size=1, max_size=4)).map(wrap)


pieces = st.recursive(st.one_of(words, words, placeholders), nested, max_leaves=8)
texts = st.tuples(st.lists(pieces, min_size=1, max_size=9), st.sampled_from([" ", " ", "\n", "  "])).map(
    lambda made: made[1].join(made[0])
)


@pytest.mark.parametrize("mischief", MISCHIEF)
@settings(max_examples=50)
@given(source=texts, seed=st.integers(0, 9))
def test_every_placeholder_is_there_as_often_as_in_the_source(mischief, source, seed):
    protector = Protector(adversary(mischief, seed))
    [result] = protector.translate([(source,)])
    finder, output = Finder(), join(result.content)
    assert Counter(finder.find(output)) == Counter(finder.find(source))
    unpaired = [tags_of(paired(finder.split(text)), Role.DIVIDER) for text in (source, output)]
    assert len(unpaired[1]) <= len(unpaired[0])
    in_order = [[tag.raw for tag in tags_of(finder.split(text)) if tag.in_order] for text in (source, output)]
    assert in_order[0] == in_order[1]


@st.composite
def contents(draw):
    """Content as a file's format gives it: tags that nobody but the format can read."""
    parts, opened = [], []
    for number in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(["text", "text", "text", "open", "close", *(r.value for r in Role)]))
        if kind == "text":
            parts.append(draw(texts).replace("\n", " ") + draw(st.sampled_from(["", " "])))
        elif kind == "open":
            opened.append(number)
            parts.append(Tag(f"<g{number}>", Role.OPEN, str(number), 10 * number, 10 * number + 5))
        elif kind == "close" and opened:
            other = opened.pop()
            parts.append(Tag(f"</g{other}>", Role.CLOSE, str(other), 10 * number, 10 * number + 6))
        elif kind in ("point", "divider", "word", "break"):
            parts.append(Tag(f"<{kind}{number}/>", Role(kind), "", 10 * number, 10 * number + 9))
    return tuple(parts)


def random_attention(seed: int):
    """Tells where a model looked, of which nothing is true."""

    def attend(outputs):
        generator = np.random.default_rng(seed)
        found = []
        for output in outputs:
            spans = [[(place, place + 3) if generator.random() < 0.9 else None for place in range(60)] for _ in "ab"]
            weights = generator.dirichlet(np.full(60, 0.05), 60).astype(np.float32)
            found.append(Attention(*spans, weights) if generator.random() < 0.9 and output else None)
        return found

    return attend


@pytest.mark.parametrize("mischief", MISCHIEF)
@settings(max_examples=50)
@given(content=contents(), seed=st.integers(0, 9), attends=st.booleans())
def test_every_tag_of_a_file_is_there_once_and_well_nested(mischief, content, seed, attends):
    attention = random_attention(seed) if attends else None
    [result] = Protector(adversary(mischief, seed), attention=attention).translate([content])
    known, written = paired(content), result.content
    assert Counter(t.raw for t in tags_of(known) if not t.in_text) == Counter(
        t.raw for t in tags_of(written) if not t.in_text
    )
    opened = []
    for tag in tags_of(written):
        if tag.in_text:
            continue
        if tag.role is Role.OPEN:
            opened.append(tag.name)
        elif tag.role is Role.CLOSE:
            assert opened.pop() == tag.name
    assert not opened


@given(source=texts)
def test_identity_gives_the_same_text(source):
    [result] = Protector(list).translate([(source,)])
    assert join(result.content).split() == source.split()


def test_markup_goes_where_its_words_went():
    lexicon = {
        "Clique em Salvar agora.": "Now click on Save.",
        "Salvar": "Save",
        "O arquivo azul foi apagado.": "The blue file was deleted.",
        "azul": "Blue",
    }
    translate = Protector(lambda texts: [lexicon.get(text, "?") for text in texts]).translate
    [first, second] = translate([("Clique em <b>Salvar</b> agora.",), ("O arquivo <i>azul</i> foi apagado.",)])
    assert join(first.content) == "Now click on <b>Save</b>."
    assert join(second.content) == "The <i>blue</i> file was deleted."
    assert first.repaired


def test_an_output_that_has_everything_is_taken_as_it_is():
    [result] = Protector(lambda texts: ["%s: no such file"] * len(texts)).translate([("%s: arquivo inexistente",)])
    assert join(result.content) == "%s: no such file"
    assert not result.repaired
    assert result.used == ["%s: no such file"]


def test_unnumbered_directives_of_printf_keep_their_order():
    [result] = Protector(lambda texts: [_reversed(text) for text in texts]).translate([("copiar %s para %d casas",)])
    assert Finder().find(join(result.content)) == ["%s", "%d"]


def _reversed(text):
    return " ".join(reversed(text.split()))


def test_a_wrapped_sentence_is_translated_at_once_and_wrapped_again():
    asked = []

    def translate(texts):
        asked.extend(texts)
        return [text.upper() for text in texts]

    source = "Uma linha que foi quebrada porque estava cheia demais\npara caber aqui.\n\nOutra.\n"
    [result] = Protector(translate).translate([(source,)])
    assert asked == ["Uma linha que foi quebrada porque estava cheia demais para caber aqui.", "Outra."]
    assert join(result.content) == source.upper()


def test_a_users_pattern_counts_and_a_wrong_one_is_refused():
    [result] = Protector(lambda texts: ["x"] * len(texts), [r"#\w+#"]).translate([("o #nome# do arquivo",)])
    assert "#nome#" in join(result.content)
    with pytest.raises(InvalidSetting, match="no regular expression"):
        Finder(["("])
    with pytest.raises(InvalidSetting, match="empty text"):
        Finder(["a*"])


def test_tags_are_compared_with_their_order_and_nesting():
    def pair(raw, role, name):
        return Tag(raw, role, name)

    source = paired((pair("<b>", Role.OPEN, "b"), "x", pair("</b>", Role.CLOSE, "b"), Tag("<br/>", Role.POINT)))
    assert same_tags(source, source)
    assert not same_tags(source, source[:-1])
    assert not same_tags(source, (source[2], "x", source[0], source[3]))


def test_sentences_and_paragraphs_of_markup_are_translated_one_by_one():
    asked = []

    def translate(texts):
        asked.extend(texts)
        return [text.upper() for text in texts]

    def starts(text):
        return [place + 2 for place in range(len(text) - 2) if text[place : place + 2] == ". "]

    source = "<qt><p>Um <b>dois</b>. Três.</p><p>Quatro %1</p></qt>"
    [result] = Protector(translate, sentences=starts).translate([(source,)])
    assert asked[:2] == ["Um <b>dois</b>.", "Três."]
    assert join(result.content) == "<qt><p>UM <b>DOIS</b>. TRÊS.</p><p>QUATRO %1</p></qt>"


def word_attention(source: str, output: str, links: dict[str, str]) -> Attention:
    """That of a model with a token a word, which looks at one word of the source for each of the output's."""
    spans = [[match.span() for match in re.finditer(r"\w+|[^\w\s]", text)] for text in (source, output)]
    words = [[text[slice(*span)] for span in its] for text, its in zip((source, output), spans, strict=True)]
    weights = np.zeros((len(words[1]), len(words[0])), np.float32)
    for place, word in enumerate(words[1]):
        weights[place, words[0].index(links.get(word, word))] = 1.0
    return Attention(*spans, weights)


def test_markup_goes_where_the_model_looked_and_nothing_is_translated_twice():
    asked = []
    output = "They saw the white house of the king."
    links = {"They": "Viram", "saw": "Viram", "the": "a", "white": "branca", "house": "casa", "of": "do", "king": "rei"}

    def translate(texts):
        asked.extend(texts)
        return [output for _ in texts]

    def attend(outputs):
        assert outputs == [output]
        return [word_attention("Viram a casa branca do rei.", output, links)]

    content = paired(
        (
            "Viram a ",
            Tag("<b>", Role.OPEN, "b", 8, 11),
            "casa ",
            Tag("<i>", Role.OPEN, "i", 16, 19),
            "branca",
            Tag("</i>", Role.CLOSE, "i", 25, 29),
            Tag("</b>", Role.CLOSE, "b", 29, 33),
            " do rei.",
        )
    )
    [result] = Protector(translate, attention=attend).translate([content])
    assert join(result.content) == "They saw the <b><i>white</i> house</b> of the king."
    assert asked == ["Viram a casa branca do rei."]


@given(gains=st.lists(st.integers(-5, 5), min_size=1, max_size=8))
def test_the_best_stretch_is_that_of_all_stretches(gains):
    first, last = best_stretch(gains)
    every = [sum(gains[i : j + 1]) for i in range(len(gains)) for j in range(i, len(gains))]
    assert sum(gains[first : last + 1]) == max(every)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("veja <https://example.org/a> e <EOT>", ["<https://example.org/a>", "<EOT>"]),
        ("Um.<p>Dois <b>três</b>", ["<p>", "<b>", "</b>"]),
        ("para <bug-x@gnu.org>.", ["<bug-x@gnu.org>"]),
        ("Uso: programa <arquivo>", []),
        ("<B>x</B>", ["<B>", "</B>"]),
    ],
)
def test_what_is_in_angle_brackets(text, found):
    assert Finder().find(text) == found
    [result] = Protector(lambda texts: ["x"] * len(texts)).translate([(text,)])
    assert Counter(Finder().find(join(result.content))) == Counter(found)
