from __future__ import annotations

import pickle

import pytest
from firefox_files import TEXT, write_vocabulary
from hypothesis import given, settings
from hypothesis import strategies as st

from knn_seq.errors import KnnSeqError
from knn_seq.models.firefox_network import FirefoxTokenizer

WORDS = sorted({word for line in TEXT for word in line.split()})


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.spm"
    write_vocabulary(path)
    return path


@pytest.fixture(scope="module")
def tokenizer(path):
    return FirefoxTokenizer(path)


@settings(deadline=None)
@given(sentences=st.lists(st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join), max_size=4))
def test_text_comes_back(tokenizer, sentences):
    encoded = tokenizer.encode(sentences)
    assert [tokenizer.decode(ids) for ids in encoded] == sentences
    assert all(ids.index(0) == len(ids) - 1 for ids in encoded)
    assert all(0 <= number < tokenizer.vocab_size for ids in encoded for number in ids)
    assert ["".join(map(tokenizer.token, ids[:-1])).replace("▁", " ").strip() for ids in encoded] == sentences


def test_decoding_stops_at_the_end(tokenizer):
    [ids] = tokenizer.encode(["the cat"])
    assert tokenizer.decode([*ids, *ids]) == "the cat"
    assert tokenizer.decode([0, *ids]) == tokenizer.decode([]) == ""


def test_row_of_the_matrix_without_a_piece(tokenizer):
    [ids] = tokenizer.encode(["the cat"])
    assert tokenizer.decode([tokenizer.vocab_size + 3, *ids]) == "the cat"
    assert tokenizer.token(tokenizer.vocab_size + 3) == ""


def test_pickle(tokenizer, path):
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert copy.encode(TEXT) == tokenizer.encode(TEXT)
    assert copy.vocabulary_hash() == tokenizer.vocabulary_hash() == FirefoxTokenizer(path).vocabulary_hash()


def test_hash_tells_vocabularies_apart(tokenizer, tmp_path):
    write_vocabulary(tmp_path / "vocab.spm", vocab_size=35)
    assert FirefoxTokenizer(tmp_path / "vocab.spm").vocabulary_hash() != tokenizer.vocabulary_hash()


def test_character_is_only_replaced_where_the_vocabulary_lacks_it(tmp_path):
    import sentencepiece

    tokenizers = []
    for text in (["a - b", 'c "d"'], ["a — b - a", "c “d” “c” “a”"]):
        path = tmp_path / "vocab.spm"
        with path.open("wb") as file:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(text * 20),
                model_writer=file,
                vocab_size=12,
                hard_vocab_limit=False,
                character_coverage=1.0,
                eos_id=0,
                unk_id=1,
                bos_id=-1,
                pad_id=-1,
                minloglevel=2,
            )
        tokenizers.append(FirefoxTokenizer(path))
    plain, rich = tokenizers
    sentence = "a — b “c”"
    assert plain.decode(plain.encode([sentence])[0]) == 'a - b "c"'
    assert rich.decode(rich.encode([sentence])[0]) == sentence


def test_bad_file(tmp_path):
    (tmp_path / "vocab.spm").write_bytes(b"nothing")
    for name in ("vocab.spm", "missing.spm"):
        with pytest.raises(KnnSeqError, match=rf"Cannot read .*{name} as a SentencePiece vocabulary"):
            FirefoxTokenizer(tmp_path / name)
