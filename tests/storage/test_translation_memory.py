from __future__ import annotations

import logging

import pytest

from knn_seq.corpus import open_corpus
from knn_seq.errors import DamagedFile, InvalidSetting
from knn_seq.storage.translation_memory import TranslationMemory


def test_bad_pairs_are_left_out_and_counted(tmp_path, caplog):
    (tmp_path / "train.tsv").write_bytes(b"5 6\t7\n\nonly one\n8\t \n9\t10 11\n\xff\t1\n")
    with caplog.at_level(logging.INFO, "knn_seq"):
        memory = TranslationMemory.open(tmp_path / "train.tsv")
    assert list(memory.texts) == [("5 6", "7"), ("9", "10 11")]
    assert len(memory) == 2
    assert caplog.messages == ["4 sentence pairs were left out: 2 empty side, 1 missing column, 1 not UTF-8."]


def test_all_that_is_a_corpus_can_be_opened(tmp_path):
    (tmp_path / "a.txt").write_text("um\tone\n")
    (tmp_path / "b.txt").write_text("one\n")
    opened = open_corpus(tmp_path / "a.txt", format="tsv")
    assert TranslationMemory.open(opened).texts == [("um", "one")]
    assert TranslationMemory.open(tmp_path / "a.txt", format="tsv", columns=(2, 1)).texts == [("one", "um")]
    assert TranslationMemory.open(source=tmp_path / "a.txt", target=tmp_path / "b.txt").texts == [("um\tone", "one")]
    assert TranslationMemory.open([("um", "one"), ("", "two")]).texts == [("um", "one")]


def test_nothing_usable_is_refused(tmp_path):
    (tmp_path / "train.tsv").write_text("one side\n")
    with pytest.raises(DamagedFile, match=r"no usable sentence pair in train.tsv \(1 missing column\)"):
        TranslationMemory.open(tmp_path / "train.tsv")
    with pytest.raises(InvalidSetting, match="no sentence pair"):
        TranslationMemory([])
