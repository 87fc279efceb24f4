"""Plain text in windows: each token once, with the context that it should have."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knn_seq import Datastore, KnnSeqError
from knn_seq.corpus import WindowReader
from knn_seq.errors import InvalidSetting
from knn_seq.models import load_model
from knn_seq.settings import ModelSettings


class Numbers:
    """A tokenizer whose text is numbers."""

    def __init__(self, start):
        self.text_start = start

    def encode_text(self, text):
        return [int(word) for word in text.split()]

    def plain_text(self, tokens):
        return " ".join(map(str, tokens))


class Reads:
    def __init__(self, start=(), window=None):
        self.tokenizer, self.window = Numbers(list(start)), window


def windows_of(path, model, **options):
    reader = WindowReader([path], None, options)
    reader.bind(model)
    return reader, list(reader.windows())


def slow_windows(length, window, stride):
    """For each predicted place the places that are seen before it, as papers compute perplexity."""
    seen, last = {}, 0
    for begin in range(0, length, stride):
        end = min(begin + window, length)
        for place in range(max(last, 1), end):
            seen[place] = list(range(begin, place))
        last = end
        if end == length:
            break
    return seen


@given(st.integers(0, 60), st.integers(1, 9), st.integers(1, 12), st.booleans())
def test_windows_are_those_that_papers_use(tmp_path_factory, length, stride, context, begins):
    path = tmp_path_factory.getbasetemp() / "numbers.txt"
    path.write_text(" ".join(map(str, range(1 if begins else 0, length))))
    tokens = list(range(length)) if length or not begins else [0]
    _, windows = windows_of(path, Reads([0] if begins else []), stride=stride, context=context)
    seen = {}
    for before, predicted in windows:
        assert 1 <= len(predicted) <= stride
        for place, token in enumerate(predicted):
            assert token not in seen  # each once
            seen[token] = [*before, *predicted[:place]]
    assert seen == slow_windows(len(tokens), context + stride, stride)


def test_the_models_window_is_the_default(tmp_path):
    (tmp_path / "text.txt").write_text("1 2 3")
    for window, options, wanted in [
        (64, {}, (32, 32)),
        (None, {}, (512, 512)),
        (8192, {}, (512, 512)),
        (64, {"stride": 10}, (10, 54)),
        (64, {"context": 60}, (4, 60)),
        (64, {"stride": 3, "context": 5}, (3, 5)),
    ]:
        reader, _ = windows_of(tmp_path / "text.txt", Reads(window=window), **options)
        assert (reader.stride, reader.context) == wanted
    with pytest.raises(InvalidSetting, match="reads 64 tokens at a time"):
        windows_of(tmp_path / "text.txt", Reads(window=64), stride=33, context=32)


def test_a_file_is_read_in_blocks(tmp_path, monkeypatch):
    lines = "".join(f"{number}\n" for number in range(300))
    with gzip.open(tmp_path / "text.txt.gz", "wt") as file:
        file.write(lines)
    monkeypatch.setattr("knn_seq.corpus.windows.BLOCK_BYTES", 17)
    reader, _ = windows_of(tmp_path / "text.txt.gz", Reads())
    assert list(reader.tokens()) == list(range(300))
    assert reader.words() == 300


def test_each_token_is_stored_once_with_its_context(text_store, language_model, text_file):
    model = load_model(ModelSettings(language_model(), prompt="{source}", device="cpu"))
    tokens = model.tokenizer.encode_text(text_file.read_text())
    assert text_store.values.items.tolist() == tokens[1:]
    place = 1
    for source, target in zip(text_store.sources, text_store.values, strict=True):
        assert source.tolist() == tokens[max(place - 32, 0) : place]
        assert target.tolist() == tokens[place : place + len(target)]
        place += len(target)
    assert text_store.manifest.model.prompt == "{source}"


def test_an_interrupted_build_resumes_with_another_window_only_elsewhere(text_store, language_model, text_file):
    again = Datastore.build(text_store.path, language_model(), text=text_file, index_recipe="Flat", key_dtype="float32")
    assert len(again) == len(text_store)
    with pytest.raises(KnnSeqError, match="another corpus"):
        Datastore.build(
            text_store.path,
            language_model(),
            text=text_file,
            index_recipe="Flat",
            key_dtype="float32",
            corpus_options={"stride": 5},
        )


def test_what_cannot_be_is_refused(tmp_path, save_model, language_model, text_file, knn_seq):
    store = tmp_path / "store"
    code, _, err = knn_seq("build", store, "--model", save_model("marian"), "--text", text_file)
    assert code == 2
    assert "Plain text (--text) is for decoder-only models" in err
    code, _, err = knn_seq("build", store, "--model", language_model(), "--text", text_file, "--corpus", text_file)
    assert (code, err) == (2, "knn-seq: Give plain text or sentence pairs, not both.\n")
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe\xfa")
    code, _, err = knn_seq("build", store, "--model", language_model(), "--text", tmp_path / "bad.txt")
    assert code == 2
    assert "is no UTF-8 text" in err
    (tmp_path / "empty.txt").write_text("")
    code, _, err = knn_seq("build", store, "--model", language_model(), "--text", tmp_path / "empty.txt")
    assert code == 2
    assert "no usable" in err
