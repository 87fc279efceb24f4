from __future__ import annotations

import gzip
from types import SimpleNamespace

import pytest

from knn_seq.corpus import BadPair, SentencePair, open_corpus
from knn_seq.errors import DamagedFile, InvalidSetting

XLIFF_1 = '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">{}</xliff>'
XLIFF_2 = '<xliff version="2.1" xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="pt-BR" trgLang="en">{}</xliff>'
FILE_1 = '<file original="a.html" source-language="pt-BR" target-language="en" datatype="html"{}><body>{}</body></file>'


@pytest.fixture
def read(tmp_path):
    def read(text, model=None, name="a.xlf", **options):
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        corpus = open_corpus(path, options=options)
        if model is not None:
            corpus.bind(SimpleNamespace(source_language=model[0], target_language=model[1]))
        units = list(corpus)
        for start in range(len(units) + 2):
            assert list(corpus.pairs(start)) == units[start:]
        return units

    return read


def version_1(*units: str, attributes: str = "") -> str:
    return XLIFF_1.format(FILE_1.format(attributes, "".join(units)))


def unit_1(target: str = "<target>one</target>", source: str = "um", id: str = "1", attributes: str = "") -> str:
    return f'<trans-unit id="{id}" {attributes}><source>{source}</source>{target}</trans-unit>'


def unit_2(*segments: str, id: str = "u1", attributes: str = "") -> str:
    return f'<unit id="{id}" {attributes}>{"".join(segments)}</unit>'


def segment(state: str | None = "final", source: str = "um", target: str = "one", id: str | None = None) -> str:
    given = "".join(f' {name}="{value}"' for name, value in (("id", id), ("state", state)) if value is not None)
    return f"<segment{given}><source>{source}</source><target>{target}</target></segment>"


def version_2(*units: str) -> str:
    return XLIFF_2.format(f'<file id="f1">{"".join(units)}</file>')


def texts(units):
    return [tuple(unit[:2]) if isinstance(unit, SentencePair) else unit.reason for unit in units]


@pytest.mark.parametrize("name", ["a.xlf", "a.xliff", "a.xlf.gz"])
def test_a_unit_has_a_place_an_id_and_a_date(read, tmp_path, name):
    text = version_1(unit_1(), unit_1("<target/>", id="2"), attributes=' date="2026-11-18T06:50:00Z"')
    first, second = read(text, name=name)
    place, id, file = "unit 1 (id a.html/1)", "a.html/1", str(tmp_path / name)
    assert first == SentencePair("um", "one", place, id=id, corpus=file, date="2026-11-18T06:50:00Z")
    assert second == BadPair("unit 2 (id a.html/2)", "empty side")


STATES_1 = {
    '<target state="final">': ("initial", "translated", "reviewed", "final"),
    '<target state="signed-off">': ("initial", "translated", "reviewed"),
    '<target state="translated">': ("initial", "translated"),
    "<target>": ("initial", "translated"),
    '<target state="needs-review-translation">': ("initial",),
    '<target state="new">': ("initial",),
    '<target state="x-mine">': ("initial",),
}


@pytest.mark.parametrize("state", ["initial", "translated", "reviewed", "final"])
@pytest.mark.parametrize(("target", "accepted"), STATES_1.items(), ids=STATES_1)
def test_states_of_version_1(read, target, accepted, state):
    found = texts(read(version_1(unit_1(f"{target}one</target>")), state=state))
    assert found == [("um", "one")] if state in accepted else found == ["not translated"]
    assert texts(read(version_1(unit_1(f"{target}one</target>")))) == (
        [("um", "one")] if "translated" in accepted else ["not translated"]
    )


def test_approval_and_missing_targets_of_version_1(read):
    text = version_1(
        unit_1('<target state="new">one</target>', attributes='approved="yes"'),
        unit_1(attributes='approved="no"'),
        unit_1(""),
        unit_1(attributes='translate="no"'),
    )
    assert texts(read(text)) == [("um", "one"), "not translated", "not translated", "not for translation"]
    assert texts(read(text, state="initial")) == [("um", "one"), ("um", "one"), "empty side", "not for translation"]


def test_states_of_version_2(read):
    states = ["initial", "translated", "reviewed", "final", None]
    text = version_2(*(unit_2(segment(state), id=str(number)) for number, state in enumerate(states)))
    good, bad = ("um", "one"), "not translated"
    assert texts(read(text)) == [bad, good, good, good, bad]
    assert texts(read(text, state="final")) == [bad, bad, bad, good, bad]
    assert texts(read(text, state="initial")) == [good] * 5


def test_segments_of_version_2(read):
    text = version_2(
        unit_2(
            segment(source="um ", id="s1"),
            "<ignorable><source> </source></ignorable>",
            segment(source="dois", target="two"),
            "<segment><source>três</source></segment>",
        ),
        unit_2(segment(id="x"), id="u2"),
        unit_2(segment(), id="u3", attributes='translate="no"'),
    )
    units = read(text)
    assert texts(units) == [("um", "one"), ("dois", "two"), "not translated", ("um", "one"), "not for translation"]
    assert [unit.place for unit in units] == [
        *("unit 1 (id f1/u1/s1)", "unit 1 (id f1/u1/2)", "unit 1 (id f1/u1/3)"),
        *("unit 2 (id f1/u2)", "unit 3 (id f1/u3)"),
    ]
    assert [unit.id for unit in units if isinstance(unit, SentencePair)] == ["f1/u1/s1", "f1/u1/2", "f1/u2"]


def test_segments_of_version_1(read):
    marked = (
        '<seg-source><mrk mtype="seg" mid="0">um.</mrk> <g id="1"><mrk mtype="seg" mid="7">dois.</mrk></g>'
        '<mrk mtype="seg" mid="8">três</mrk></seg-source>'
    )
    target = '<target><mrk mtype="seg" mid="7">two.</mrk> <mrk mtype="seg" mid="0">one.</mrk></target>'
    units = read(version_1(unit_1(marked + target, source="um. dois.")))
    assert texts(units) == [("um.", "one."), ("dois.", "two."), "empty side"]
    assert units[1].id == "a.html/1/7"
    assert texts(read(version_1(unit_1(marked + "<target>all</target>", source="um. dois.")))) == [("um. dois.", "all")]


@pytest.mark.parametrize(
    ("inline", "text"),
    [
        ("<g id='1'>a <x id='2'/>b</g> <bx id='3'/>c<ex id='3'/>", "a b c"),
        (
            "a<bpt id='1'>&lt;b></bpt>b<ept id='1'>&lt;/b></ept><ph id='2'>{0}<sub>x</sub></ph>"
            "<it id='3' pos='open'>y</it>",
            "ab",
        ),
        ("<mrk mtype='term'>a</mrk> b", "a b"),
    ],
)
def test_inline_elements_of_version_1(read, inline, text):
    assert texts(read(version_1(unit_1(source=inline)))) == [(text, "one")]


@pytest.mark.parametrize(
    ("inline", "text"),
    [
        ("<pc id='1'>a <ph id='2'/>b</pc> <sc id='3'/>c<ec startRef='3'/>", "a b c"),
        ("<mrk id='1'>a</mrk><cp hex='0007'/> <sm id='2'/>b<em startRef='2'/>", "a b"),
    ],
)
def test_inline_elements_of_version_2(read, inline, text):
    assert texts(read(version_2(unit_2(segment(source=inline))))) == [(text, "one")]


def test_alternatives_and_other_namespaces_are_ignored(read):
    alternative = "<alt-trans><source>x</source><target>wrong</target></alt-trans>"
    assert texts(read(version_1(unit_1(alternative + "<target>one</target>")))) == [("um", "one")]
    matches = (
        '<m:matches xmlns:m="urn:oasis:names:tc:xliff:matches:2.0"><m:match ref="#1"><source>x</source>'
        "<target>wrong</target></m:match></m:matches>"
    )
    data = "<originalData><data id='d1'>code</data></originalData>"
    assert texts(read(version_2(unit_2(matches, data, segment())))) == [("um", "one")]


def test_several_documents_and_groups(read):
    groups = "<body><group><group>{}</group></group></body>"
    other = f'<file original="b" source-language="en" target-language="pt">{groups}</file>'
    text = XLIFF_1.format(FILE_1.format("", unit_1()) + other.format(unit_1("<target>dois</target>", "two")))
    assert texts(read(text)) == [("um", "one"), ("two", "dois")]
    assert [unit.id for unit in read(text)] == ["a.html/1", "b/1"]
    for way in ({"source_lang": "pt"}, {"source_lang": "pt", "target_lang": "en"}):
        assert texts(read(text, **way)) == [("um", "one"), ("dois", "two")]
    assert texts(read(text, model=("por_Latn", "eng_Latn"))) == [("um", "one"), ("dois", "two")]
    assert texts(read(text, model=("en", "pt"))) == [("one", "um"), ("two", "dois")]
    assert texts(read(text, model=("de", "en"))) == ["missing language"] * 2
    assert texts(read(text, model=("de", "en"), source_lang="pt")) == [("um", "one"), ("dois", "two")]


def test_trados_and_memoq_note_states_beside_the_text(read):
    sdl = (
        '<sdl:seg-defs xmlns:sdl="http://sdl.com/FileTypes/SdlXliff/1.0"><sdl:seg id="1" conf="Draft"/>'
        '<sdl:seg id="2" conf="ApprovedTranslation"/></sdl:seg-defs>'
    )
    sides = (
        "<seg-source><mrk mtype='seg' mid='1'>um</mrk><mrk mtype='seg' mid='2'>dois</mrk></seg-source>"
        "<target><mrk mtype='seg' mid='1'>one</mrk><mrk mtype='seg' mid='2'>two</mrk></target>"
    )
    assert texts(read(version_1(unit_1(sides + sdl)), name="a.sdlxliff")) == ["not translated", ("dois", "two")]
    units = [unit_1(attributes=f'xmlns:mq="MQXliff" mq:status="{s}"') for s in ("Pretranslated", "ManuallyConfirmed")]
    assert texts(read(version_1(*units), name="a.mqxliff")) == ["not translated", ("um", "one")]


def test_the_identity_has_the_languages_that_choose(tmp_path):
    path = tmp_path / "a.xlf"
    path.write_text(version_1(unit_1()))
    corpus = open_corpus(path)
    identity = corpus.identity()
    corpus.bind(SimpleNamespace(source_language="en", target_language="pt"))
    assert corpus.identity() != identity


def test_what_is_no_xliff_file(read):
    with pytest.raises(DamagedFile, match=r"a\.xlf is no XLIFF file: its first element is tmx"):
        read("<tmx/>")
    with pytest.raises(DamagedFile, match="no well-formed XML at line 1"):
        read(version_1(unit_1())[:-30])
    with pytest.raises(InvalidSetting, match="state is one of initial, translated, reviewed, final, not done"):
        read(version_1(), state="done")
