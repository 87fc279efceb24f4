"""Dictionaries and data-bin folders of fairseq."""

from __future__ import annotations

import struct

import pytest
from fairseq_files import SOURCE_WORDS, write_cached_tokens, write_data_bin, write_dictionary, write_tokens

from knn_seq.corpus import BadPair, SentencePair, open_corpus
from knn_seq.errors import DamagedFile, InvalidSetting, KnnSeqError, NotFound
from knn_seq.fairseq.data_bin import DataBinReader
from knn_seq.fairseq.dictionary import Dictionary, join_pieces

PAIRS = [([4, 5, 2], [7, 2]), ([2], [4, 2]), ([36, 3, 2], [40, 4, 2])]


def data_bin(folder, **options):
    return open_corpus(folder, format="data_bin", options=options)


def at(folder, number, *rest):
    source, target, *tokens = rest
    return SentencePair(source, target, f"sentence {number}", *tokens, corpus=str(folder))


def test_numbers_of_a_dictionary(tmp_path):
    path = tmp_path / "dict.de.txt"
    path.write_text("der 100\ndie 90\n@-@ 3\nmadeupword0000 0\n", encoding="utf-8")
    dictionary = Dictionary.read(path)
    assert dictionary.symbols == ["<s>", "<pad>", "</s>", "<unk>", "der", "die", "@-@", "madeupword0000"]
    assert dictionary.encode(["die", "das", "@-@"]) == [5, 3, 6, 2]
    assert dictionary.decode([0, 5, 3, 6, 99, 2, 4]) == ["die", "<unk>", "@-@", "<unk>"]


def test_overwritten_symbols_keep_their_places(tmp_path):
    path = tmp_path / "dict.de.txt"
    path.write_text("a 5\nb 4\na 3 #fairseq:overwrite\n<unk> 1 #fairseq:overwrite\n")
    dictionary = Dictionary.read(path)
    assert len(dictionary) == 8
    assert dictionary.number("a") == 6
    assert dictionary.symbols[4] == dictionary.symbols[6] == "a"
    dictionary.write(tmp_path / "again.txt")
    assert Dictionary.read(tmp_path / "again.txt") == dictionary


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a 1\na 2\n", "'a' a second time in line 2"),
        ("a\n", "Line 1"),
        ("a 1\nb x\n", "Line 2"),
        ("</s> 1\n", "'</s>'"),
    ],
)
def test_damaged_dictionaries(text, message, tmp_path):
    path = tmp_path / "dict.de.txt"
    path.write_text(text)
    with pytest.raises(KnnSeqError, match=message):
        Dictionary.read(path)
    path.write_bytes(b"\xff 1\n")
    with pytest.raises(KnnSeqError, match="not UTF-8"):
        Dictionary.read(path)


def test_words_of_pieces():
    assert join_pieces(["low@@", "er", "x@@"], word_starts=False) == "lower x"
    assert join_pieces(["▁low", "er", "▁", "x"], word_starts=True) == "lower x"


def test_pairs_come_with_their_tokens(tmp_path):
    corpus = data_bin(write_data_bin(tmp_path / "bin", PAIRS))
    assert list(corpus) == [
        at(tmp_path / "bin", 1, "s0 s1", "t3", (4, 5, 2), (7, 2)),
        BadPair("sentence 2", "empty side"),
        at(tmp_path / "bin", 3, "s32 <unk>", "t36 t0", (36, 3, 2), (40, 4, 2)),
    ]
    assert list(corpus.pairs(2)) == list(corpus)[2:]
    assert corpus.describe() == "train of bin (xx-yy)"


def test_the_other_direction_reads_the_same_files(tmp_path):
    write_data_bin(tmp_path, PAIRS)
    corpus = data_bin(tmp_path, source_lang="yy", target_lang="xx")
    assert next(iter(corpus)) == at(tmp_path, 1, "t3", "s0 s1", (7, 2), (4, 5, 2))


@pytest.mark.parametrize(("kind", "code"), [("u1", 1), ("<i2", 3), ("<i4", 4), ("<i8", 5), ("<u2", 8), ("<u4", 9)])
def test_all_kinds_of_numbers(kind, code, tmp_path):
    write_data_bin(tmp_path, PAIRS)
    write_tokens(tmp_path / "train.xx-yy.xx", [pair[0] for pair in PAIRS], kind, code)
    assert [pair.source_tokens for pair in data_bin(tmp_path) if isinstance(pair, SentencePair)] == [
        (4, 5, 2),
        (36, 3, 2),
    ]


def test_the_older_format(tmp_path):
    write_data_bin(tmp_path, PAIRS)
    wanted = list(data_bin(tmp_path))
    for side, language in enumerate(("xx", "yy")):
        write_cached_tokens(tmp_path / f"train.xx-yy.{language}", [pair[side] for pair in PAIRS])
    assert list(data_bin(tmp_path)) == wanted


def test_further_parts_of_a_split_follow(tmp_path):
    write_data_bin(tmp_path, PAIRS)
    write_data_bin(tmp_path, PAIRS[:1], "train1")
    write_data_bin(tmp_path, PAIRS[:2], "train3")  # not connected: there is no train2
    corpus = data_bin(tmp_path)
    assert [unit.place for unit in corpus] == [f"sentence {number}" for number in (1, 2, 3, 4)]
    assert list(corpus.pairs(3)) == [at(tmp_path, 4, "s0 s1", "t3", (4, 5, 2), (7, 2))]


def test_sentencepiece_text_and_bpe_text(tmp_path):
    write_data_bin(tmp_path, PAIRS)
    write_dictionary(tmp_path / "dict.xx.txt", ["▁a", "b", *SOURCE_WORDS[2:]])
    write_dictionary(tmp_path / "dict.yy.txt", ["c@@", *(f"t{number}" for number in range(1, 36)), "d@@"])
    pairs = [unit for unit in data_bin(tmp_path) if isinstance(unit, SentencePair)]
    assert (pairs[0].source, pairs[1].target) == ("ab", "dc")


def test_the_identity_is_that_of_the_files(tmp_path):
    write_data_bin(tmp_path, PAIRS)
    first = data_bin(tmp_path).identity()
    assert data_bin(tmp_path).identity() == first
    write_data_bin(tmp_path, PAIRS[:2])
    assert data_bin(tmp_path).identity() != first


def test_an_empty_split(tmp_path):
    assert list(data_bin(write_data_bin(tmp_path, []))) == []


def test_folders_that_cannot_be_read(tmp_path):
    with pytest.raises(NotFound, match="There is no folder"):
        data_bin(tmp_path / "none")
    with pytest.raises(InvalidSetting, match=r"cannot be told from its files \(none found\)"):
        data_bin(tmp_path).describe()
    write_data_bin(tmp_path, PAIRS)
    with pytest.raises(NotFound, match="There is no split 'valid' from xx to yy"):
        data_bin(tmp_path, split="valid").identity()
    index = tmp_path / "train.xx-yy.xx.idx"
    complete = index.read_bytes()
    for content, message in (
        (complete[:30], "cut short or damaged"),
        (b"HUFFIDX\x00\x00" + complete[9:], "format that is not supported"),
        (complete[:9] + struct.pack("<Q", 2) + complete[17:], "version 2"),
        (b"", "format that is not supported"),
    ):
        index.write_bytes(content)
        with pytest.raises(DamagedFile, match=message):
            list(data_bin(tmp_path))
    index.write_bytes(complete)
    (tmp_path / "train.xx-yy.xx.bin").write_bytes(b"\x04\x00")
    with pytest.raises(DamagedFile, match="ends before the sentences"):
        list(data_bin(tmp_path))


def test_sides_that_do_not_belong_together(tmp_path):
    write_data_bin(tmp_path, PAIRS)
    write_tokens(tmp_path / "train.xx-yy.yy", [[4, 2]])
    with pytest.raises(DamagedFile, match="same number of sentences"):
        list(data_bin(tmp_path))
    write_tokens(tmp_path / "train.xx-yy.yy", [[4, 2], [999, 2], [4, 2]])
    with pytest.raises(DamagedFile, match=r"Sentence 2 of train .* tokens that its dictionary does not"):
        list(data_bin(tmp_path))


def test_a_folder_is_recognised(tmp_path):
    assert not DataBinReader.recognises(tmp_path)
    write_data_bin(tmp_path, PAIRS)
    assert DataBinReader.recognises(tmp_path)
    assert open_corpus(tmp_path).format == "data_bin"
