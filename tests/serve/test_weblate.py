"""Weblate's LibreTranslate machinery: its requests as version 5.14.3 sends them, and its class if it is there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from knn_seq.serve.access import KeyFile

HEADERS = {
    "User-Agent": "Weblate/5.14.3",
    "Accept": "application/json; charset=utf-8",
    "Referer": "http://weblate.example",
}
PROBE = {"q": ["test"], "source": "en", "target": "de"}  # what the settings page asks, whatever the server offers
TEXTS = ["Ficheiro [X9X] não existe em [X32X]."] * 2 + [f"5 7 [X{4 + number}X] 9" for number in range(18)]


@pytest.fixture
def weblate(server):
    with httpx.Client(base_url=server.url, timeout=60, headers=HEADERS) as client:
        yield client


def test_the_settings_page_can_be_saved(weblate):
    assert {each["code"] for each in weblate.get("/languages").json()} == {"pt", "en"}
    answer = weblate.post("/translate", json={"api_key": "", **PROBE})
    assert answer.json() == {"translatedText": ["test"]}
    other = weblate.post("/translate", json={"api_key": "", **PROBE, "q": ["house"]})
    assert other.status_code == 400  # nothing else is let through


def test_lists_of_texts_with_placeholders(weblate):
    body = {"api_key": "", "q": TEXTS, "source": "pt", "target": "en"}
    answer = weblate.post("/translate", json=body).json()
    assert list(answer) == ["translatedText"]
    assert len(answer["translatedText"]) == len(TEXTS) == 20
    for source, target in zip(TEXTS, answer["translatedText"], strict=True):
        assert sorted(placeholders(target)) == sorted(placeholders(source))


def test_keys_are_sent_in_the_body_and_languages_asked_without(make_client, tmp_path):
    key = KeyFile(tmp_path / "keys.json").add("weblate", "translate")
    client = make_client(api_keys=tmp_path / "keys.json")
    assert client.get("/languages", headers=HEADERS).status_code == 200
    for given, status in ((key, 200), ("", 400), ("wrong", 403)):
        answer = client.post("/translate", json={"api_key": given, **PROBE}, headers=HEADERS)
        assert answer.status_code == status
        assert list(answer.json()) == ["translatedText" if status == 200 else "error"]  # the page shows the error


def test_the_class_itself(server):
    pytest.importorskip("weblate", reason="Weblate is not installed: its requests are replayed only")
    command = [sys.executable, str(Path(__file__).parent / "weblate_machinery.py"), server.url]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert (told["saved"], told["languages"]) == (True, ["pt", "en"])
    assert len(told["targets"]) == 20
    assert all("%(name)s" in text and "{folder}" in text for text in told["targets"][:2])
    assert all("%s" in text for text in told["targets"][2:])


def placeholders(text: str) -> list[str]:
    return re.findall(r"\[X\d+X\]", text)
