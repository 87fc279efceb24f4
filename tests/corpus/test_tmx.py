from __future__ import annotations

import gzip
import json
import subprocess
import sys
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tmx_files import tmx, unit

from knn_seq import Translator
from knn_seq.cli.files import read_test_set
from knn_seq.corpus import BadPair, SentencePair, open_corpus
from knn_seq.corpus.languages import best_language, model_language
from knn_seq.errors import DamagedFile, InvalidSetting


@pytest.fixture
def write(tmp_path):
    def write(*units, name="a.tmx", encoding="utf-8", **header):
        path = tmp_path / name
        data = tmx(*units, **header).encode(encoding)
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write


def model(source=None, target=None):
    return SimpleNamespace(source_language=source, target_language=target)


def texts(corpus):
    return [tuple(pair[:2]) for pair in corpus if isinstance(pair, SentencePair)]


def test_units_ids_dates_and_bad_ones(write):
    path = write(
        unit('tuid="4711" creationdate="20200101T000000Z" changedate="20261118T065000Z"', pt_BR=" um ", en="one"),
        unit("creationdate='20200101T120000Z'", en="two", pt_BR="dois"),
        unit('tuid="x"', pt_BR="três"),
        unit("", pt_BR="quatro", en=" "),
        '<tu><prop type="corpus"> old.tmx </prop><tuv lang="EN-us" changedate="20210101T000000Z"><seg>five</seg></tuv>'
        '<tuv lang="pt-br" changedate="20220101T000000Z"><note>no</note><seg>cinco</seg></tuv></tu>',
    )
    corpus = open_corpus(path)
    expected = [
        SentencePair("um", "one", "unit 1 (tuid 4711)", None, None, "4711", str(path), "2026-11-18T06:50:00Z"),
        SentencePair("dois", "two", "unit 2", corpus=str(path), date="2020-01-01T12:00:00Z"),
        BadPair("unit 3 (tuid x)", "missing language"),
        BadPair("unit 4", "empty side"),
        BadPair("unit 5", "missing language"),
    ]
    options = {"source_lang": "pt", "target_lang": "en"}
    last = SentencePair("cinco", "five", "unit 5", corpus="old.tmx", date="2022-01-01T00:00:00Z")
    assert list(open_corpus(path, options=options)) == [*expected[:4], last]
    with pytest.raises(InvalidSetting, match=r"languages of .*a\.tmx are pt-BR, en, EN-us: give the corpus options"):
        list(corpus)
    for start in range(7):
        assert list(open_corpus(path, options=options).pairs(start)) == [*expected[:4], last][start:]


@pytest.mark.parametrize(
    ("segment", "text"),
    [
        ("a <bpt i='1'>&lt;b></bpt>b<ept i='1'>&lt;/b></ept> c", "a b c"),
        ("a<ph x='1'>{0}<sub>inside</sub></ph>b<it pos='begin'>&lt;i></it>c<ut>{u}</ut>", "abc"),
        ("a <hi type='term'>b <bpt i='1'>x</bpt><hi>c</hi></hi> d", "a b c d"),
        ("a &amp;&lt;&#233;<![CDATA[<b>&]]>", "a &<é<b>&"),
        ("<!-- no -->a<?no?>b", "ab"),
    ],
)
def test_inline_codes_are_dropped_and_text_is_kept(write, segment, text):
    assert texts(open_corpus(write(unit("", pt_BR=segment, en="x")))) == [(text, "x")]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("name", ["a.tmx", "a.TMX.gz"])
def test_encodings_and_gzip(write, encoding, name):
    path = write(unit("", pt_BR="coração", en="heart ♥"), name=name, encoding=encoding)
    assert texts(open_corpus(path, format=None if name == "a.tmx" else "tmx")) == [("coração", "heart ♥")]


class TestLanguages:
    @pytest.mark.parametrize(
        ("wanted", "there", "best"),
        [
            ("pt", ["en", "pt-PT", "pt-BR", "PT"], "PT"),
            ("pt", ["pt-PT", "pt_br"], "pt_br"),
            ("pt", ["pt-AO", "pt-PT"], "pt-AO"),
            ("en", ["en-GB", "en-US"], "en-US"),
            ("de", ["de-AT", "de-DE"], "de-DE"),
            ("pt-BR", ["pt-PT", "pt"], "pt"),
            ("pt-BR", ["pt-PT"], None),
            ("zh-Hant", ["zh", "zh-Hant-TW"], "zh"),
            ("por", ["pt-BR"], "pt-BR"),
            ("pt", ["ptx"], None),
            ("pt", [], None),
        ],
    )
    def test_fallbacks(self, wanted, there, best):
        assert best_language(wanted, there) == best

    @pytest.mark.parametrize(
        ("code", "language"),
        [
            *(("pt", "pt"), ("por_Latn", "pt"), ("pt_XX", "pt"), ("pt_BR", "pt-br"), ("zho_Hant", "zh-tw")),
            *(("zh_CN", "zh-cn"), ("Portuguese", None), ("my language", None), ("", None), (None, None)),
        ],
    )
    def test_codes_of_models(self, code, language):
        assert model_language(code) == language

    def test_two_languages_from_srclang_to_the_other(self, write):
        units = [unit("", en="one", pt_BR="um"), unit("", pt_BR="dois", en="two")]
        assert texts(open_corpus(write(*units))) == [("um", "one"), ("dois", "two")]
        for srclang in ("en", "EN-us"):
            assert texts(open_corpus(write(*units, srclang=srclang))) == [("one", "um"), ("two", "dois")]

    @pytest.mark.parametrize("srclang", ["*all*", "de"])
    def test_two_languages_and_no_source(self, write, srclang):
        corpus = open_corpus(write(unit("", en="one", pt="um"), srclang=srclang))
        with pytest.raises(InvalidSetting, match=r"are en, pt: .*--corpus-option source_lang=en,target_lang=pt"):
            corpus.identity()

    def test_one_option_is_enough_for_two(self, write):
        path = write(unit("", en="one", pt="um"), srclang="*all*")
        assert texts(open_corpus(path, options={"source_lang": "en"})) == [("one", "um")]
        assert texts(open_corpus(path, options={"target_lang": "en"})) == [("um", "one")]

    def test_several_are_chosen_by_options_or_by_the_model(self, write):
        path = write(unit("", pt_BR="um", pt_PT="hum", en="one", de="eins"))
        with pytest.raises(InvalidSetting, match="are pt-BR, pt-PT, en, de"):
            list(open_corpus(path))
        for source, target, pair in (("pt", "en", ("um", "one")), ("de", "pt-PT", ("eins", "hum"))):
            options = {"source_lang": source, "target_lang": target}
            assert texts(open_corpus(path, options=options)) == [pair]
            bound = open_corpus(path)
            bound.bind(model(source, target))
            assert texts(bound) == [pair]
            assert bound.identity()["inferred"]["target_lang"].lower() == target.lower()
        given = open_corpus(path, options={"source_lang": "de", "target_lang": "en"})
        given.bind(model("pt", "en"))
        assert texts(given) == [("eins", "one")]

    def test_a_model_of_other_languages_is_refused(self, write):
        corpus = open_corpus(write(unit("", pt_BR="um", en="one")))
        corpus.bind(model("de", "en"))
        with pytest.raises(InvalidSetting, match="are pt-BR, en: the model's de is not among them; give"):
            corpus.identity()
        corpus = open_corpus(write(unit("", pt_BR="um", en="one")))
        corpus.bind(model("Portuguese", "English"))  # words for a prompt
        assert texts(corpus) == [("um", "one")]

    def test_a_translation_memory_is_read_in_the_direction_of_its_model(self, write):
        path = write(
            *(unit("", en=f"The myocardial infarction {n}.", pt=f"O infarto {n}.") for n in range(3)), srclang="en"
        )
        translator = Translator(model="firefox:pt-en", translation_memory=path, temperature=10.0)
        assert translator.store.texts[0] == ("O infarto 0.", "The myocardial infarction 0.")

    def test_a_test_set_is_read_in_the_direction_of_the_model(self, write):
        corpus = open_corpus(write(unit("", en="one", pt="um"), srclang="en"))
        assert read_test_set(corpus, model("pt", "en"))[:2] == (["um"], ["one"])

    def test_languages_that_are_preferred_later_count(self, write):
        corpus = open_corpus(write(unit("", en="one", pt="um"), srclang="en"))
        assert texts(corpus) == [("one", "um")]
        corpus.prefer_languages(model("pt", "en"))
        assert texts(corpus) == [("um", "one")]

    def test_the_direction_of_the_model_is_that_of_the_pairs(self, write):
        corpus = open_corpus(write(unit("", pt_BR="um", en="one")))
        corpus.bind(model("eng_Latn", None))
        assert texts(corpus) == [("one", "um")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<xliff/>", r"a\.tmx is no TMX file: its first element is xliff"),
        (tmx(unit("", pt_BR="um", en="one"), "<tu><tuv xml:lang='pt'><seg>dois"), "no well-formed XML at line 6"),
    ],
)
def test_what_is_no_tmx_file(tmp_path, text, message):
    (tmp_path / "a.tmx").write_text(text)
    with pytest.raises(DamagedFile, match=message):
        list(open_corpus(tmp_path / "a.tmx"))


def test_units_before_the_damage_are_given(tmp_path):
    whole = tmx(*(unit(f'tuid="{n}"', pt_BR=f"número {n}", en=f"number {n}") for n in range(5000)))
    (tmp_path / "a.tmx").write_text(whole[: len(whole) // 2])
    pairs = open_corpus(tmp_path / "a.tmx").pairs()
    assert [next(pairs).id for _ in range(1000)] == [str(n) for n in range(1000)]
    with pytest.raises(DamagedFile, match=r"at line 2,\d\d\d"):
        list(pairs)


def test_a_file_without_units_is_empty(write):
    assert list(open_corpus(write())) == []


def test_a_unit_that_is_too_long_is_bad(write):
    path = write(unit("", pt_BR="x" * (2 << 20), en="y"), unit("", pt_BR="um", en="one"))
    assert next(open_corpus(path).pairs()) == BadPair("unit 1", "too long")
    assert texts(open_corpus(path)) == [("um", "one")]


language = st.sampled_from(["pt", "pt-BR", "pt-PT", "en", "de"])
segments = st.lists(st.tuples(language, st.sampled_from(["um", " dois ", "", "a<ph>x</ph>b"])), max_size=4)


@given(units=st.lists(segments, max_size=5))
def test_the_pairs_are_those_of_a_complete_parse(tmp_path_factory, units):
    path = tmp_path_factory.mktemp("tmx") / "a.tmx"
    variants = ["".join(f"<tuv xml:lang='{lang}'><seg>{text}</seg></tuv>" for lang, text in one) for one in units]
    path.write_text(tmx(*(f"<tu>{inside}</tu>" for inside in variants)))

    def slow(tu, *wanted):
        for lang in wanted:
            for tuv in tu.iter("tuv"):
                if tuv.get("{http://www.w3.org/XML/1998/namespace}lang") == lang:
                    seg = tuv.find("seg")
                    return ((seg.text or "") + "".join(code.tail or "" for code in seg)).strip()
        return ""

    pairs = [(slow(tu, "pt", "pt-BR", "pt-PT"), slow(tu, "en")) for tu in ElementTree.parse(path).iter("tu")]
    corpus = open_corpus(path, options={"source_lang": "pt", "target_lang": "en"})
    assert texts(corpus) == [pair for pair in pairs if all(pair)]
    assert sum(1 for _ in corpus) == len(units)


CHILD = """
import json, resource, sys
from knn_seq.corpus import SentencePair, open_corpus
corpus = open_corpus(sys.argv[1])
corpus.identity()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
pairs = sum(isinstance(unit, SentencePair) for unit in corpus)
print(json.dumps([pairs, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before]))
"""


def test_a_large_file_is_read_in_bounded_memory(tmp_path):
    path = tmp_path / "a.tmx.gz"
    text = "palavra " * 25
    block = "".join(unit(f'tuid="{n}"', pt_BR=text, en=text) + "\n" for n in range(1000)).encode()
    beginning, end = tmx("SPLIT").encode().split(b"SPLIT")
    blocks = (50 << 20) // len(block) + 1
    with gzip.open(path, "wb", compresslevel=1) as file:
        for part in (beginning, *[block] * blocks, end):
            file.write(part)
    done = subprocess.run([sys.executable, "-c", CHILD, str(path)], capture_output=True, text=True, check=True)
    pairs, grown = json.loads(done.stdout)
    unit_bytes = 1024 if sys.platform != "darwin" else 1
    assert pairs == 1000 * blocks
    assert grown * unit_bytes < 8 << 20
