from __future__ import annotations

import gettext
import io
import shutil
import struct
import subprocess

import pytest
from debian_text import Phrase, unique
from it_text import PACKAGES, catalogs, cleaned, package_list, phrases_of


def catalog_bytes(messages):
    """A `.mo` file: a header, two tables of lengths and places, and the strings, each with a NUL behind it."""
    messages = {"": "Content-Type: text/plain; charset=UTF-8\nPlural-Forms: nplurals=2; plural=n>1;\n", **messages}
    tables, strings, place = [], b"", 28 + 16 * len(messages)
    for side in (sorted(messages), [messages[key] for key in sorted(messages)]):
        for text in side:
            data = text.encode()
            tables.append(struct.pack("<2I", len(data), place + len(strings)))
            strings += data + b"\0"
    head = struct.pack("<7I", 0x950412DE, 0, len(messages), 28, 28 + 8 * len(messages), 0, 0)
    return head + b"".join(tables) + strings


def test_a_catalog_gives_sentences_without_header_context_and_plurals():
    data = catalog_bytes(
        {
            "Could not open the file": "Não foi possível abrir o arquivo",
            "menu\x04Close all of the windows": "Fechar todas as janelas",
            "One file was deleted\0Some files were deleted": "Um arquivo foi excluído\0Vários arquivos foram excluídos",
            "Save": "Salvar",
        }
    )
    assert set(phrases_of(gettext.GNUTranslations(io.BytesIO(data)))) == {
        Phrase("Não foi possível abrir o arquivo", "Could not open the file"),
        Phrase("Fechar todas as janelas", "Close all of the windows"),
        Phrase("Um arquivo foi excluído", "One file was deleted"),
    }


@pytest.mark.parametrize(
    ("english", "portuguese", "expected"),
    [
        (
            "Save _as another file...",
            "Salvar _como outro arquivo...",
            ("Save as another file...", "Salvar como outro arquivo..."),
        ),
        (
            "Sa&ve as another file:",
            "Salvar como outro arquivo:",
            ("Save as another file:", "Salvar como outro arquivo:"),
        ),
        ("Two\nlines and  spaces\n", "Duas\nlinhas e  espaços", ("Two lines and spaces", "Duas linhas e espaços")),
        (
            "The user_name is not valid",
            "O user_name não é válido",
            ("The user_name is not valid", "O user_name não é válido"),
        ),
        (
            "Search & replace all text",
            "Localizar & substituir tudo",
            ("Search & replace all text", "Localizar & substituir tudo"),
        ),
        ("It is 50 % done now", "Estão prontos 50 % agora", ("It is 50 % done now", "Estão prontos 50 % agora")),
    ],
)
def test_sentences_are_cleaned(english, portuguese, expected):
    assert cleaned(english, portuguese) == Phrase(expected[1], expected[0])


@pytest.mark.parametrize(
    ("english", "portuguese"),
    [
        ("Three words only", "Apenas três palavras"),
        ("This was left alone", "This was left alone"),
        ("This was left untranslated", ""),
        ("Cannot open file %s now", "Não é possível abrir %s"),
        ("Opening <b>this file</b> failed", "A abertura <b>deste arquivo</b> falhou"),
        ("The option --all is required", "A opção --all é necessária"),
        ("1 2 3 4 a", "1 2 3 4 b"),
    ],
)
def test_what_is_no_text_is_left_out(english, portuguese):
    assert cleaned(english, portuguese) is None


def test_each_side_comes_once_whatever_its_case():
    phrases = [Phrase("a b", "x"), Phrase("A B", "y"), Phrase("c", "X"), Phrase("d", "z")]
    assert [phrase for phrase, _ in unique((phrase, "p") for phrase in phrases)] == [phrases[0], phrases[3]]


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="there is no dpkg-deb")
def test_the_brazilian_catalogs_of_a_package_are_read(tmp_path, capsys):
    root = tmp_path / "root"
    texts = {"pt_BR": "Não foi possível abrir o arquivo", "pt": "Não foi possível abrir o ficheiro"}
    for language, text in texts.items():
        folder = root / "usr/share/locale" / language / "LC_MESSAGES"
        folder.mkdir(parents=True)
        (folder / "it.mo").write_bytes(catalog_bytes({"Could not open the file": text}))
    (folder.parents[1] / "pt_BR/LC_MESSAGES/broken.mo").write_bytes(b"no catalog")
    (root / "DEBIAN").mkdir()
    (root / "DEBIAN/control").write_text(
        "Package: it\nVersion: 1\nArchitecture: all\nMaintainer: Nobody <nobody@example.org>\nDescription: text\n"
    )
    package = tmp_path / "it_1_all.deb"
    subprocess.run(["dpkg-deb", "--build", root, package], check=True, capture_output=True)
    found = [phrase for catalog in catalogs(package) for phrase in phrases_of(catalog)]
    assert found == [Phrase(texts["pt_BR"], "Could not open the file")]
    assert "broken.mo cannot be read" in capsys.readouterr().out


def test_packages_are_named_once():
    assert len(PACKAGES) == len(set(PACKAGES)) == 600


def test_packages_are_listed_once_and_in_order():
    assert package_list(["q=2", "p=1-2", "q=2"]) == "p=1-2 q=2"
    assert all(len(line) <= 120 for line in package_list(f"package-{i}=1" for i in range(99)).splitlines())
