"""Memory and glossary over HTTP: what was written is used by the next request."""

from __future__ import annotations

import asyncio
import io
import time

import pytest
from starlette.exceptions import HTTPException

from knn_seq.serve.middleware import BodyLimit

STORE = "/v1/stores/numbers"


@pytest.fixture
def client(make_client):
    return make_client()


def translated(client, text, **more):
    answer = client.post("/v1/translate", json={"texts": [text], **more})
    assert answer.status_code == 200, answer.text
    return answer.json()["translations"][0]


def finished(client, job):
    for _ in range(600):
        state = client.get(f"/v1/jobs/{job}").json()
        if state["state"] in ("done", "failed"):
            return state
        time.sleep(0.05)
    raise AssertionError(state)


def test_a_correction_is_used_at_once_replaced_and_deleted(client):
    source = "30 31 32 33"
    before = translated(client, source)
    assert before["learned"] is False
    [first] = client.put(f"{STORE}/memory", json={"pairs": [{"source": source, "target": "50 51"}]}).json()["ids"]
    assert {**translated(client, f" {source} "), "sentences": []} | {"text": "50 51"} == {
        **before, "text": "50 51", "learned": True
    }  # fmt: skip
    assert translated(client, source, exact=False)["learned"] is False
    [same] = client.put(f"{STORE}/memory", json={"pairs": [{"source": source, "target": "52 53"}]}).json()["ids"]
    assert same == first
    assert translated(client, source)["text"] == "52 53"
    found = client.get(f"{STORE}/memory", params={"q": "52 53", "limit": 500}).json()
    assert first in [pair["id"] for pair in found["pairs"]]
    assert found["total"] == len(found["pairs"])
    assert client.delete(f"{STORE}/memory/{first}").json() == {"ids": [first]}
    assert translated(client, source) == before
    assert client.delete(f"{STORE}/memory/{first}").status_code == 404


def test_a_deleted_pair_that_is_added_again_is_the_same(client):
    shown = client.get(f"{STORE}/memory", params={"limit": 1}).json()
    [pair] = shown["pairs"]
    client.delete(f"{STORE}/memory/{pair['id']}")
    assert client.get(f"{STORE}/memory").json()["total"] == shown["total"] - 1
    assert client.post(f"{STORE}/memory", json={"pairs": [pair]}).json() == {"ids": [pair["id"]]}
    assert client.get(f"{STORE}/memory", params={"limit": 1}).json() == shown


def test_all_pairs_come_newest_first_page_by_page(client):
    client.post(f"{STORE}/memory", json={"pairs": [{"source": "5", "target": "6"}, {"source": "7", "target": "8"}]})
    everything = client.get(f"{STORE}/memory", params={"limit": 500}).json()
    assert [pair["source"] for pair in everything["pairs"][:2]] == ["7", "5"]
    assert len(everything["pairs"]) == everything["total"]
    page = client.get(f"{STORE}/memory", params={"limit": 10, "offset": 5}).json()["pairs"]
    assert page == everything["pairs"][5:15]
    own = client.get(f"{STORE}/memory", params={"corpus": "corrections"}).json()
    assert own["total"] == 2


def test_a_file_is_imported_exported_and_deleted_as_a_corpus(client):
    lines = "".join(f"{number} 5 6\t{number} 7 8\n" for number in range(10, 60)) + "only one side\n"
    answer = client.post(f"{STORE}/imports", files={"file": ("../../my terms.tsv", lines.encode())})
    assert answer.status_code == 202
    state = finished(client, answer.json()["job"])
    assert (state["state"], state["done"], state["total"]) == ("done", 50, 50)
    assert state["report"] == {"pairs": 50, "added": 50, "left_out": 1}
    assert client.get(f"{STORE}/memory", params={"corpus": "my terms.tsv"}).json()["total"] == 50
    assert translated(client, "12 5 6")["text"] == "12 7 8"
    corpus = "my terms.tsv"
    for format in ("tmx", "tsv", "jsonl"):  # the ids are the same, so that each import replaces the one before
        exported = client.get(f"{STORE}/export", params={"format": format, "corpus": corpus})
        assert exported.headers["Content-Disposition"] == f'attachment; filename="numbers.{format}"'
        again = client.post(f"{STORE}/imports", files={"file": (f"again.{format}", exported.content)})
        assert again.status_code == 202, again.text
        assert finished(client, again.json()["job"])["report"] == {"pairs": 50, "added": 50, "left_out": 0}
        corpus = f"again.{format}"
    assert len(client.delete(f"{STORE}/memory", params={"corpus": "again.jsonl"}).json()["ids"]) == 50
    assert client.get(f"{STORE}/memory", params={"corpus": "again.jsonl"}).json()["total"] == 0


def test_a_file_that_cannot_be_read_changes_nothing_and_leaves_nothing(client, monkeypatch):
    before = client.get(f"{STORE}/memory").json()["total"]
    answer = client.post(f"{STORE}/imports", files={"file": ("a.tmx", b"<tmx><body><tu>")})
    state = finished(client, answer.json()["job"])
    assert state["state"] == "failed"
    assert "a.tmx" in state["error"]
    assert "upload" not in state["error"]
    assert client.get(f"{STORE}/memory").json()["total"] == before
    assert client.get(f"/v1/jobs/{answer.json()['job']}/result").status_code == 404


def test_a_document_is_translated_with_a_report_and_nothing_of_the_upload_stays(client, tmp_path):
    text = "a b 5 7\n\nc d %s\n"
    client.put(f"{STORE}/memory", json={"pairs": [{"source": "a b 5 7", "target": "50 51"}]})
    job = client.post(f"{STORE}/documents", files={"file": ("numbers.txt", text.encode())}).json()["job"]
    state = finished(client, job)
    assert state["state"] == "done", state
    assert state["report"]["segments"] == 2
    assert state["report"]["exact_matches"] == 1
    assert state["done"] == state["total"] == 2
    assert "path" not in state["report"]
    result = client.get(f"/v1/jobs/{job}/result")
    assert result.text.startswith("50 51\n\n")
    assert "%s" in result.text
    assert result.headers["Content-Disposition"] == 'attachment; filename="numbers.txt"'


def test_terms_are_kept_used_and_deleted(client):
    assert client.get(f"{STORE}/glossary").json() == {"terms": []}
    added = client.post(f"{STORE}/glossary", json={"terms": [{"source": "17", "target": "55"}]}).json()
    assert [term["target"] for term in added["terms"]] == ["55"]
    assert "55" in translated(client, "16 17 18", exact=False)["text"].split()
    assert client.delete(f"{STORE}/glossary", params={"source": "17"}).json() == {"terms": []}
    assert client.delete(f"{STORE}/glossary", params={"source": "17"}).status_code == 404


def test_explanations_tell_neighbours_with_ids_sentences_and_corpora(client):
    told = translated(client, "5 7 9 11", explain=True, base=True, alternatives=1, neighbours=3)
    [sentence] = told["sentences"]
    assert "".join(word["text"] for word in sentence["words"]) == told["text"]
    token = sentence["tokens"][0]
    assert 0 <= token["weight"] <= 1
    assert len(token["neighbours"]) == 3
    assert {"id", "source", "target", "corpus", "date", "distance", "probability", "around"} <= set(
        token["neighbours"][0]
    )
    assert told["base"]
    assert len(told["alternatives"]) == 1


def test_settings_of_a_request_hold_for_it_alone(client):
    answer = client.post("/v1/translate", json={"texts": ["5 7"], "options": {"k": 3, "weight": 0.0}}).json()
    assert (answer["settings"]["k"], answer["settings"]["weight"]) == (3, 0.0)
    assert client.post("/v1/translate", json={"texts": ["5 7"]}).json()["settings"]["k"] != 3
    for options, sentence in (({"k": 0}, "k"), ({"combiner": "none"}, "none"), ({"nothing": 1}, "nothing")):
        refused = client.post("/v1/translate", json={"texts": ["5 7"], "options": options})
        assert refused.status_code == 400
        assert sentence in refused.json()["error"]


def test_an_unknown_store_is_404_and_no_path_of_the_server_is_told(client):
    assert client.get("/v1/stores/other/memory").status_code == 404
    refused = client.post("/v1/translate", json={"texts": ["5 7"], "options": {"index": "other"}})
    assert refused.status_code == 404
    assert "/" not in refused.json()["error"].replace("and/or", "")


def test_uploads_are_limited_while_they_stream(make_client):
    client = make_client(largest_upload=1000, largest_body=2000)
    large = {"file": ("a.tsv", io.BytesIO(b"5\t6\n" * 50_000))}
    assert client.post(f"{STORE}/imports", files=large).status_code == 413

    answer = client.post("/translate", content=b"x" * 3000, headers={"Content-Type": "application/json"})
    assert answer.status_code == 413
    assert answer.json() == {"error": "The request is larger than 2,000 bytes."}


def test_what_lies_beyond_a_limit_is_not_read():
    read = []

    async def receive():
        read.append(1)
        return {"type": "http.request", "body": b"x" * 1000, "more_body": True}

    async def app(scope, receive, send):
        while True:
            await receive()

    limited = BodyLimit(app, largest_body=5000, largest_upload=10**9)
    with pytest.raises(HTTPException) as error:
        asyncio.run(limited({"type": "http", "path": "/translate", "headers": []}, receive, None))
    assert (error.value.status_code, len(read)) == (413, 6)
