"""Complete files through a real model."""

from __future__ import annotations

import json
from collections import Counter

import polib
import pytest

from knn_seq import Translator
from knn_seq.documents import DOCUMENT_FORMATS
from knn_seq.errors import DamagedFile, InvalidSetting, KnnSeqError
from knn_seq.files import translate_file
from knn_seq.protect import Finder
from knn_seq.storage.exact_matches import ExactMatches

MEMORY = [
    ("O arquivo foi apagado.", "The file was erased."),
    ("Não foi possível abrir o arquivo %s.", "Cannot open file %s."),
    ("Abra o arquivo de configuração.", "Open the config file."),
    ("Salvar", "Save it"),
    ("Salvar", "Save"),
    ("Salvar", "Save"),
    ("Erro em %d", "Error"),
    ("O paciente sofreu um infarto.", "The patient had a myocardial infarction."),
    ("O infarto foi tratado com aspirina.", "The myocardial infarction was treated with aspirin."),
]
PO = """msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\\n"

#, c-format
msgid "Não foi possível abrir o arquivo %s."
msgstr ""

#, c-format
msgid "Copiando %d arquivos de %s para <b>%s</b>\\n"
msgstr ""

msgid "Erro em %d"
msgstr ""

msgid "Pronto"
msgstr "Ready"
"""


@pytest.fixture(scope="module")
def translator():
    with Translator(
        model="firefox:pt-en", translation_memory=MEMORY, temperature=50.0, weight=0.5, k=4, beam_size=1, device="cpu"
    ) as made:
        yield made


def test_a_catalog_is_filled_from_the_store_and_by_the_model(translator, tmp_path):
    (tmp_path / "in.po").write_text(PO)
    counted = []
    report = translate_file(translator, tmp_path / "in.po", tmp_path / "out.po", on_progress=counted.append)
    assert (tmp_path / "in.po").read_text() == PO
    first, second, third, fourth = polib.pofile(str(tmp_path / "out.po"))
    assert (first.msgstr, first.fuzzy, first.tcomment) == ("Cannot open file %s.", False, "knn-seq: exact match")
    assert second.fuzzy
    assert Counter(Finder().find(second.msgstr)) == Counter(Finder().find(second.msgid))
    assert second.msgstr.endswith("\n")
    assert "files" in second.msgstr
    assert "%d" in third.msgstr  # the stored translation has lost it, and is not taken
    assert fourth.msgstr == "Ready"
    assert (len(report.segments), report.exact_matches, report.kept, sum(counted)) == (3, 1, 1, 3)
    assert report.words == 7 + 7 + 3
    assert report.output == str(tmp_path / "out.po")
    assert report.segments[0].origin == "exact"
    assert {segment.origin for segment in report.segments[1:]} <= {"neighbours", "model"}
    assert all(segment.share is not None for segment in report.segments[1:])
    told = report.to_dict()
    assert (told["segments"], told["exact_matches"], told["terms_applied"]) == (3, 1, 0)
    assert "3 segments, 17 words; 1 exact match" in report.describe()


def test_a_page_keeps_its_markup(translator, tmp_path):
    (tmp_path / "in.md").write_text("# Salvar\n\nClique em **Salvar** para gravar. Use `git push` em http://x.org/a.\n")
    report = translate_file(translator, tmp_path / "in.md", tmp_path / "out.md")
    text = (tmp_path / "out.md").read_text()
    assert text.startswith("# Save\n\n")
    assert "**Save**" in text
    assert "`git push`" in text
    assert "http://x.org/a" in text
    assert report.segments[0].origin == "exact"


def test_without_exact_matches_and_neighbours_the_model_writes_all(translator, tmp_path):
    (tmp_path / "in.txt").write_text("Salvar\n")
    report = translate_file(translator, tmp_path / "in.txt", tmp_path / "out.txt", exact_matches=False, weight=0.0)
    assert [(segment.origin, segment.share) for segment in report.segments] == [("model", None)]


def test_neighbours_that_decide_are_told_of(translator, tmp_path):
    (tmp_path / "in.txt").write_text("O infarto foi grave.\n")
    options = {"weight": 0.8, "temperature": 200.0, "k": 2}
    report = translate_file(translator, tmp_path / "in.txt", tmp_path / "out.txt", **options)
    [segment] = report.segments
    assert segment.origin == "neighbours"
    assert 0 < segment.share <= 1
    assert "myocardial" in segment.target
    assert segment.describe() == f"neighbours {segment.share:.0%}".replace("%", " %")


def test_the_same_text_is_translated_once(translator, tmp_path, monkeypatch):
    asked = []
    translate = translator.translate
    monkeypatch.setattr(
        translator, "translate", lambda texts, **options: asked.extend(texts) or translate(texts, **options)
    )
    (tmp_path / "in.json").write_text(json.dumps(["Uma casa azul", "Uma casa azul", "Outra casa"]))
    translate_file(translator, tmp_path / "in.json", tmp_path / "out.json")
    assert asked == ["Uma casa azul", "Outra casa"]


def test_a_file_may_be_named_as_its_own_output_and_survives_a_failure(translator, tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text("Salvar\n")
    kind = DOCUMENT_FORMATS.get("text")
    with monkeypatch.context() as patched:
        patched.setattr(kind, "filled", lambda *_: (_ for _ in ()).throw(DamagedFile("no")))
        with pytest.raises(DamagedFile):
            translate_file(translator, path, path)
    assert path.read_text() == "Salvar\n"
    translate_file(translator, path, path)
    assert path.read_text() == "Save\n"
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]


def test_an_output_that_cannot_be_written_is_one_sentence(translator, tmp_path):
    (tmp_path / "a.txt").write_text("Salvar\n")
    with pytest.raises(KnnSeqError, match="cannot be written"):
        translate_file(translator, tmp_path / "a.txt", tmp_path / "none" / "b.txt")


def test_languages_of_a_translation_memory_come_from_the_model(translator, tmp_path):
    (tmp_path / "a.tmx").write_text(
        '<tmx version="1.4"><header srclang="*all*"/><body>'
        '<tu><tuv xml:lang="pt"><seg>Salvar</seg></tuv></tu></body></tmx>'
    )
    translate_file(translator, tmp_path / "a.tmx", tmp_path / "b.tmx")
    assert '<tuv xml:lang="en" creationid="knn-seq">' in (tmp_path / "b.tmx").read_text()
    with pytest.raises(InvalidSetting, match="has no option"):
        translate_file(translator, tmp_path / "a.tmx", tmp_path / "b.tmx", document_options={"x": 1})


def test_exact_matches_take_the_most_frequent_target_then_the_last():
    found = ExactMatches(MEMORY)
    assert found.target("Salvar") == "Save"
    assert found.target("salvar") is None
    assert ExactMatches([("a", "x"), ("a", "y")]).target("a") == "y"
    assert ExactMatches([("a", "x"), ("a", "y")], deleted=[1]).target("a") == "x"
    growing = [("a", "x")]
    found = ExactMatches(growing)
    assert found.target("b") is None
    growing.append(("b", "z"))
    assert found.target("b") == "z"


def test_exact_matches_of_a_datastore(number_store):
    source, _ = number_store.texts[7]
    targets = [target for stored, target in number_store.texts if stored == source]
    assert ExactMatches(number_store.texts).target(source) in targets


TAGGED_MEMORY = [
    ("Clique em Salvar como para gravar o arquivo.", "To write the file, click Save as."),
    ("Salvar como", "Save as"),
    ("A casa branca fica longe.", "The white house is far away."),
    ("Copie %s para a pasta nova.", "Copy %s to the new folder."),
]


@pytest.fixture(scope="module")
def with_tagged_memory():
    with Translator(
        model="firefox:pt-en", translation_memory=TAGGED_MEMORY, temperature=50.0, weight=0.0, beam_size=1, device="cpu"
    ) as made:
        yield made


@pytest.mark.parametrize(
    ("source", "target", "origin"),
    [
        # What stands between the tags is in the store, too, and in the target as the store has it.
        ("Clique em <b>Salvar como</b> para gravar o arquivo.", "To write the file, click <b>Save as</b>.", "exact"),
        ("<em>A casa branca fica longe.</em>", "<em>The white house is far away.</em>", "exact"),
        ("Copie <b>%s</b> para a pasta nova.", "Copy <b>%s</b> to the new folder.", "exact"),
        # These stand where the model looks.
        ("A casa <b>branca</b> fica longe.", "The <b>white</b> house is far away.", "stored"),
        ("A <b>casa <i>branca</i></b> fica longe.", "The <b><i>white</i> house</b> is far away.", "stored"),
    ],
)
def test_a_stored_translation_gets_the_tags_of_its_segment(with_tagged_memory, tmp_path, source, target, origin):
    (tmp_path / "in.html").write_text(f"<p>{source}</p>\n")
    report = translate_file(with_tagged_memory, tmp_path / "in.html", tmp_path / "out.html")
    assert (tmp_path / "out.html").read_text() == f"<p>{target}</p>\n"
    assert [segment.origin for segment in report.segments] == [origin]
    assert (report.exact_matches, report.stored) == ((1, 0) if origin == "exact" else (0, 1))


def test_a_stored_translation_with_placed_tags_is_to_be_reviewed(with_tagged_memory, tmp_path):
    (tmp_path / "in.xlf").write_text(
        '<xliff version="1.2"><file source-language="pt" target-language="en"><body>'
        '<trans-unit id="1"><source>A casa <g id="1">branca</g> fica longe.</source></trans-unit>'
        '<trans-unit id="2"><source>A casa <x id="1"/> branca fica longe.</source></trans-unit>'
        "</body></file></xliff>"
    )
    report = translate_file(with_tagged_memory, tmp_path / "in.xlf", tmp_path / "out.xlf")
    written = (tmp_path / "out.xlf").read_text()
    assert 'The <g id="1">white</g> house is far away.' in written
    assert 'state="needs-review-translation" state-qualifier="x-exact' in written
    # A placeholder that is a word of its sentence has no place in a sentence without it.
    assert [segment.origin for segment in report.segments] == ["stored", "model"]
    assert "1 exact but for tags" in report.describe()


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("O gato <b>preto</b> dorme na cama.", "black"),
        ("Clique no botão <b>vermelho</b> para sair.", "red"),
        ("Os <b>livros antigos</b> da biblioteca foram vendidos.", "old books"),
        ("A biblioteca vendeu todos os livros <b>ontem</b>.", "yesterday"),
        ("Ela comprou uma <b>casa</b> grande e um carro.", "house"),
    ],
)
def test_tags_enclose_the_words_that_theirs_became(with_tagged_memory, tmp_path, source, words):
    (tmp_path / "in.html").write_text(f"<p>{source}</p>\n")
    translate_file(with_tagged_memory, tmp_path / "in.html", tmp_path / "out.html")
    assert f"<b>{words}</b>" in (tmp_path / "out.html").read_text()
