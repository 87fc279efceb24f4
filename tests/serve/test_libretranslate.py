"""LibreTranslate's API, as its clients use it, against a server in a process of its own."""

from __future__ import annotations

import json
import urllib.parse

import httpx
import pytest
from libretranslatepy import LibreTranslateAPI

from knn_seq.serve.access import KeyFile

SOURCE = "5 7 9 11"


@pytest.fixture
def api(server):
    return LibreTranslateAPI(f"{server.url}/")


@pytest.fixture
def client(server):
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


def translation(client, **more):
    answer = client.post("/translate", json={"q": SOURCE, "source": "pt", "target": "en", **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_libretranslatepy_translates_detects_and_lists(api):
    text = api.translate(SOURCE, "pt", "en")
    assert text
    assert all(word.isdigit() for word in text.split())
    assert api.detect("Bom dia, como vai você hoje?")[0]["language"] == "pt"
    # Clients look a target up in this list, so one that is only a target is in it, too.
    assert api.languages() == [
        {"code": "en", "name": "English", "targets": []},
        {"code": "pt", "name": "Portuguese", "targets": ["en"]},
    ]


def test_a_suggestion_is_used_by_the_next_request(client):
    suggestion = {"q": "40 41 42 43", "s": "44 45 46", "source": "pt", "target": "en"}
    assert client.post("/suggest", data=suggestion).json() == {"success": True}
    assert translation(client, q="40 41 42 43") == {"translatedText": "44 45 46"}
    assert client.post("/suggest", json={**suggestion, "s": " "}).status_code == 400
    assert client.post("/suggest", json={**suggestion, "target": "pt"}).status_code == 400


def test_a_file_is_translated_and_downloaded(client):
    file = {"file": ("numbers.txt", b"5 7 9 11\n\n20 21 %s\n")}
    answer = client.post("/translate_file", data={"source": "pt", "target": "en"}, files=file).json()
    result = client.get(answer["translatedFileUrl"])
    assert result.headers["Content-Disposition"] == 'attachment; filename="numbers.txt"'
    lines = result.text.split("\n")
    assert len(lines) == 4
    assert lines[0]
    assert not lines[1]
    assert "%s" in lines[2]


def test_a_list_gives_a_list_and_a_form_what_json_gives(client):
    one = translation(client)
    assert set(one) == {"translatedText"}
    assert translation(client, q=[SOURCE, "", SOURCE])["translatedText"] == [
        one["translatedText"],
        "",
        one["translatedText"],
    ]
    form = client.post("/translate", data={"q": SOURCE, "source": "pt", "target": "en"})
    assert form.json() == one
    multipart = client.post("/translate", files={name: (None, value) for name, value in
                                                 {"q": SOURCE, "source": "pt", "target": "en"}.items()})  # fmt: skip
    assert multipart.json() == one


@pytest.mark.parametrize("code", ["pt-BR", "pt_PT", "PT", "por", "por_Latn"])
def test_regions_and_aliases_are_the_language(client, code):
    assert translation(client, source=code) == translation(client)
    assert translation(client, target="en-GB") == translation(client)


def test_alternatives_and_the_detected_language_are_there_only_if_asked_for(client):
    answer = translation(client, alternatives=2, source="auto")
    assert len(answer["alternatives"]) == 2
    assert answer["detectedLanguage"]["language"] == "pt"
    assert 0 <= answer["detectedLanguage"]["confidence"] <= 100
    many = translation(client, q=[SOURCE, "8 9"], alternatives=1, source="auto")
    assert [len(others) for others in many["alternatives"]] == [1, 1]
    assert [found["language"] for found in many["detectedLanguage"]] == ["pt", "pt"]


def test_html_keeps_its_tags_and_loses_what_runs(client):
    html = '<p class="x" onclick="steal()">5 7 <b>9</b> 11</p><script>alert(1)</script><a href="javascript:x()">8</a>'
    answer = translation(client, q=html, format="html")["translatedText"]
    assert answer.startswith('<p class="x">')
    assert "<b>" in answer
    assert "</p>" in answer
    for word in ("script", "onclick", "alert", "steal"):
        assert word not in answer


def test_markup_in_plain_text_stays_text(client):
    answer = translation(client, q="<script>alert(1)</script>")
    assert "<script>" in answer["translatedText"] or "alert" in answer["translatedText"]


def test_lines_and_space_stay_where_they_are(client):
    text = "  5 7 9\n\n\t8 10\r\n 6 7 "
    answer = translation(client, q=text)["translatedText"]
    assert answer.startswith("  ")
    assert answer.endswith(" ")
    assert "\n\n\t" in answer
    assert "\r\n " in answer


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"q": None}, "Invalid request: missing q parameter"),
        ({"q": ""}, "Invalid request: missing q parameter"),
        ({"q": []}, "Invalid request: missing q parameter"),
        ({"q": [1]}, "Invalid request: missing q parameter"),
        ({"source": None}, "Invalid request: missing source parameter"),
        ({"target": ""}, "Invalid request: missing target parameter"),
        ({"source": "xx"}, "xx is not supported"),
        ({"source": "en", "target": "pt"}, "Portuguese (pt) is not available as a target language from English (en)"),
        ({"format": "pdf"}, "pdf format is not supported"),
        ({"alternatives": "many"}, "Invalid request: alternatives parameter is not a number"),
        ({"alternatives": 11}, "Invalid request: alternatives parameter must be <= 10"),
        ({"q": "5 " * 20_000}, "Invalid request: request (40000) exceeds text limit (20000)"),
        ({"q": ["5"] * 129}, "Invalid request: request (129) exceeds text limit (128)"),
        ({"q": "5 \ud800"}, "Invalid request: a text has half a character (a lone surrogate)"),
    ],
)
def test_a_bad_request_is_400_with_a_sentence(client, given, sentence):
    body = json.dumps({"q": SOURCE, "source": "pt", "target": "en", **given})
    answer = client.post("/translate", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()) == (400, {"error": sentence})


@pytest.mark.parametrize("body", [b"{", b"[1]", b"\xff", b"[" * 100_000])
def test_what_is_not_json_is_400(client, body):
    answer = client.post("/translate", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("Invalid JSON format")


def test_a_file_must_be_what_its_name_says(client):
    fields = {"source": "pt", "target": "en"}
    for name, content, sentence in (
        ("a.exe", b"5 7", "file format not supported"),
        ("a.docx", b"5 7", "not what its name says"),
        ("a.txt", b"PK\x03\x04\0\0", "not what its name says"),
        ("a.txt", b"", "empty file"),
    ):
        answer = client.post("/translate_file", data=fields, files={"file": (name, content)})
        assert answer.status_code == 400, name
        assert sentence in answer.json()["error"]
    assert client.post("/translate_file", data=fields).json() == {"error": "Invalid request: missing file parameter"}


@pytest.mark.parametrize("name", ["../../etc/passwd", "x" * 22, "a.txt", "%2e%2e%2fstate.json"])
def test_no_path_of_a_client_reaches_the_disk(client, name):
    assert client.get(f"/download_file/{urllib.parse.quote(name, safe='%')}").status_code == 404
    assert client.get(f"/v1/jobs/{urllib.parse.quote(name, safe='%')}").status_code == 404


def test_settings_and_health(client):
    settings = client.get("/frontend/settings").json()
    assert settings["charLimit"] == 20_000
    assert settings["keyRequired"] is False
    assert settings["suggestions"] is True
    assert ".docx" in settings["supportedFilesFormat"]
    assert settings["language"]["source"] == {"code": "pt", "name": "Portuguese"}
    assert client.get("/health").json() == {"status": "ok"}


def test_every_answer_has_the_headers_that_keep_a_page_safe(client):
    for path in ("/", "/languages", "/page/app.js", "/nothing"):
        headers = client.get(path).headers
        assert headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self';")
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"
        assert "server" not in headers


HALF = '"\\ud800"'  # JSON can hold half a character, and no file and no answer can


@pytest.mark.parametrize("field", ["q", "source", "target", "format", "alternatives", "api_key"])
def test_half_a_character_is_refused_in_every_field(make_client, tmp_path, field):
    KeyFile(tmp_path / "keys.json").add("any", "translate")
    client = make_client(api_keys=tmp_path / "keys.json" if field == "api_key" else None)
    given = {"q": '"5 7"', "source": '"pt"', "target": '"en"', field: HALF}
    body = "{" + ", ".join(f'"{name}": {value}' for name, value in given.items()) + "}"
    answer = client.post("/translate", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == (403 if field == "api_key" else 400)
    assert answer.json()["error"]
