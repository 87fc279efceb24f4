"""Glossaries in files: TSV, TBX, and the one that a datastore keeps."""

from __future__ import annotations

import gzip
import json
import shutil

import pytest

from knn_seq.errors import DamagedFile, InvalidSetting, KnnSeqError, NotFound
from knn_seq.glossary import Glossary, Term, as_glossary, keep_glossary, stored_glossary
from knn_seq.glossary.tsv import tsv_lines
from knn_seq.storage import DatastoreFolder

TERMS = [
    Term("oferta", "offering", part_of_speech="noun", target_forms=("offerings",), forbidden=("gift", "bid")),
    Term("Java", "Java", case_sensitive=True, source_forms=("JavaScript",)),
    Term("casa", "", forbidden=("house",)),
]
MARTIF = """<?xml version="1.0"?>
<!DOCTYPE martif SYSTEM "TBXcoreStructV02.dtd">
<martif type="TBX-Basic" xml:lang="en"><martifHeader><fileDesc/></martifHeader><text><body>
<termEntry id="1"><descrip type="subjectField">text</descrip>
<langSet xml:lang="pt-BR"><tig><term>oferta  de
 paz</term><termNote type="partOfSpeech">noun</termNote></tig></langSet>
<langSet xml:lang="en"><tig><term>peace offering</term></tig>
<ntig><termGrp><term>peace gift</term><termNote type="administrativeStatus">deprecatedTerm-admn-sts</termNote></termGrp>
</ntig></langSet><langSet xml:lang="de"><tig><term>Friedensopfer</term></tig></langSet></termEntry>
</body></text></martif>"""
TBX3 = """<tbx style="dct" type="TBX-Basic" xml:lang="en" xmlns="urn:iso:std:iso:30042:ed-2"
 xmlns:min="http://www.tbxinfo.net/ns/min" xmlns:basic="http://www.tbxinfo.net/ns/basic"><text><body>
<conceptEntry id="c1"><min:subjectField>x</min:subjectField>
<langSec xml:lang="pt"><termSec><term>altar</term><min:partOfSpeech>noun</min:partOfSpeech></termSec></langSec>
<langSec xml:lang="en"><termSec><term>altar</term></termSec><termSec><term>table</term>
<min:administrativeStatus>supersededTerm-admn-sts</min:administrativeStatus></termSec></langSec>
</conceptEntry></body></text></tbx>"""


@pytest.fixture
def write(tmp_path):
    def write(text, name="terms.tsv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_two_columns_need_no_header(write):
    read = Glossary.read(write("\ufeffoferta\toffering\r\n\n altar \taltar\n"))
    assert read.terms == [Term("oferta", "offering"), Term("altar", "altar")]


def test_what_is_written_is_read_again(write):
    assert Glossary.read(write("\n".join(tsv_lines(TERMS)))).terms == TERMS


def test_columns_may_stand_in_any_order(write):
    read = Glossary.read(write("Target\tForbidden\tsource\nhome\thouse | hut\tcasa\n"))
    assert read.terms == [Term("casa", "home", forbidden=("house", "hut"))]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("oferta\n", "line 1: 'oferta' has no target"),
        ("a\tb\n\tc\n", "line 2: there is no source"),
        ("source\ttarget\tcolour\n", "column 'colour'"),
        ("source\ttarget\tcase\na\tb\tmaybe\n", "line 2: the case is 'maybe'"),
        (b"a\t\xff\n", "line 1 is not UTF-8"),
        (b"a\t" + b"b" * (1 << 21) + b"\n", "line 1 is longer"),
    ],
)
def test_a_bad_line_is_named(write, text, message):
    with pytest.raises(KnnSeqError, match=message):
        Glossary.read(write(text))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(NotFound, match=r"terms\.tsv"):
        Glossary.read(tmp_path / "terms.tsv")


@pytest.mark.parametrize("pack", [str.encode, lambda text: gzip.compress(text.encode())])
def test_tbx_of_version_2(write, pack):
    read = Glossary.read(write(pack(MARTIF), "terms.tbx"), "pt", "en")
    assert read.terms == [
        Term("oferta de paz", "peace offering", part_of_speech="noun", forbidden=("peace gift",)),
    ]
    assert (read.source_lang, read.target_lang) == ("pt-BR", "en")
    assert Glossary.read(write(pack(MARTIF), "terms.tbx"), "en", "de").terms[0].target == "Friedensopfer"


def test_tbx_of_version_3(write):
    wanted = [Term("altar", "altar", part_of_speech="noun", forbidden=("table",))]
    assert Glossary.read(write(TBX3), "pt", None).terms == wanted  # the other one of two
    assert Glossary.read(write(TBX3.replace("min:", "")), "pt", "en").terms == wanted


def test_a_tbx_file_of_several_languages_needs_two_of_them(write):
    with pytest.raises(InvalidSetting, match="de, en, pt-BR"):
        Glossary.read(write(MARTIF), "pt", None)
    with pytest.raises(InvalidSetting, match="say which"):
        Glossary.read(write(TBX3))


LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (MARTIF[:200], "no TBX file"),
        ("<?xml version='1.0'?><html/>", "neither termEntry nor"),
        (f'<!DOCTYPE martif [<!ENTITY l0 "ha">{LAUGHS}]><martif>&l9;</martif>', "entities of its own"),
        ('<!DOCTYPE m [<!ENTITY x SYSTEM "file:///etc/passwd">]><martif>&x;</martif>', "entities of its own"),
        ("<martif>" * 100, "too deep"),
        (MARTIF.replace("paz", "paz" * 5000), "ten thousand characters"),
    ],
)
def test_damaged_and_hostile_tbx_files_are_refused(write, text, message):
    with pytest.raises(DamagedFile, match=message):
        Glossary.read(write(text), "pt", "en")


def test_python_takes_mappings_pairs_and_terms():
    wanted = [Term("a", "b"), Term("c", "d")]
    assert as_glossary({"a": "b", "c": "d"}).terms == as_glossary([("a", "b"), wanted[1]]).terms == wanted
    with pytest.raises(InvalidSetting, match="A glossary is"):
        as_glossary([3])
    with pytest.raises(InvalidSetting, match="neither a target"):
        as_glossary({"a": " "})


@pytest.fixture
def store(tmp_path, number_store):
    shutil.copytree(number_store.path, tmp_path / "store")
    return DatastoreFolder(tmp_path / "store")


def files(store):
    return [path.name for path in store.path.glob("glossary*")]


def test_a_datastore_keeps_its_glossary(store):
    assert stored_glossary(store) is None
    keep_glossary(store, Glossary(TERMS, "pt", "en"))
    again = stored_glossary(DatastoreFolder(store.path))
    assert again.terms == TERMS
    assert (again.source_lang, again.target_lang) == ("pt", "en")
    keep_glossary(store, Glossary(TERMS[:1]))
    assert stored_glossary(store).terms == TERMS[:1]
    assert files(store) == [store.manifest.glossary.file]
    keep_glossary(store, Glossary())
    assert stored_glossary(store) is None
    assert files(store) == []


def test_a_glossary_that_was_replaced_meanwhile_is_the_new_one(store):
    keep_glossary(store, Glossary(TERMS))
    reader = DatastoreFolder(store.path)
    assert reader.manifest.glossary.terms == 3
    keep_glossary(store, Glossary(TERMS[:1]))
    assert stored_glossary(reader).terms == TERMS[:1]


@pytest.mark.parametrize("damage", ['{"terms": [{"source": 3}]}', "[]", '{"terms"', None])
def test_a_damaged_glossary_is_named_and_can_be_imported_again(store, damage, write, knn_seq):
    keep_glossary(store, Glossary(TERMS))
    path = store.path / store.manifest.glossary.file
    path.unlink() if damage is None else path.write_text(damage)
    with pytest.raises(DamagedFile, match="glossary-"):
        stored_glossary(DatastoreFolder(store.path))
    code, _, err = knn_seq("glossary", store.path, "list")
    assert code == 2
    assert "glossary-" in err
    assert knn_seq("glossary", store.path, "import", write("\n".join(tsv_lines(TERMS))))[0] == 0
    assert stored_glossary(DatastoreFolder(store.path)).terms == TERMS


def test_commands_change_and_show_it(store, write, knn_seq):
    path = write("\n".join(tsv_lines(TERMS)))
    assert knn_seq("glossary", store.path, "import", path)[0] == 0
    assert knn_seq("glossary", store.path, "import", write("altar\taltar\noferta\tofferte\n", "more.tsv"))[0] == 0
    code, output, _ = knn_seq("glossary", store.path, "list")
    assert code == 0
    assert "oferta → offering (noun; also offerings; never gift, bid)" in output.splitlines()
    assert len(output.splitlines()) == 5
    assert knn_seq("glossary", store.path, "remove", "oferta")[0] == 0
    assert knn_seq("glossary", store.path, "export", path.with_name("out.tsv"))[0] == 0
    left = [*TERMS[1:], Term("altar", "altar")]
    assert Glossary.read(path.with_name("out.tsv")).terms == left
    assert knn_seq("glossary", store.path, "export")[1] == path.with_name("out.tsv").read_text()
    assert "glossary" in knn_seq("info", store.path)[1]
    assert json.loads(knn_seq("info", store.path, "--json")[1])["glossary"]["terms"] == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("import",), "a file"),
        (("import", "nowhere.tsv"), "nowhere.tsv"),
        (("remove", "nothing"), "no term 'nothing'"),
        (("export", "/nowhere/out.tsv"), "cannot be written"),
    ],
)
def test_mistakes_are_one_sentence(store, knn_seq, arguments, message):
    code, _, error = knn_seq("glossary", store.path, *arguments)
    assert code == 2
    assert message in error
    assert len(error.strip().splitlines()) == 1
