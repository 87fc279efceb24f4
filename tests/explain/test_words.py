"""Tokens joined to words, whatever the vocabulary."""

from __future__ import annotations

import io

import pytest
import sentencepiece
import tokenizers
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from knn_seq.explain.words import around_word, words_of
from knn_seq.fairseq.checkpoint.subwords import BytePairs
from knn_seq.fairseq.checkpoint.tokenizer import FairseqTokenizer, Moses, Side
from knn_seq.fairseq.dictionary import Dictionary
from knn_seq.models import PairTokenizer

TEXT = [
    "In the beginning God created the heaven and the earth.",
    "And the earth was without form, and void; and darkness was upon the face of the deep.",
    'He said: "Let there be light," (and there was light) – wasn\'t there?',
    "Ação, coração: não é fácil. Überraschung größer! Привет мир.",
    "初めに、神は天地を創造された。 地は混沌であって",
]
WORDS = sorted(
    {word for line in TEXT for word in line.split()} | {"lowest", "🙂", "हिन्दी", "x<y", "...", "a-b", "¿qué?"}
)


class Pieces(PairTokenizer):
    """A SentencePiece vocabulary with bytes for what it does not know."""

    def __init__(self):
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(TEXT * 4),
            model_writer=model,
            vocab_size=400,
            byte_fallback=True,
            character_coverage=0.98,
            hard_vocab_limit=False,
            minloglevel=2,
        )
        self.processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())

    def encode_targets(self, texts):
        return [self.processor.encode(text, add_eos=True) for text in texts]

    encode_sources = encode_targets

    def decode(self, tokens):
        return self.processor.decode([int(token) for token in tokens])

    def token(self, token):
        return self.processor.id_to_piece(token)


class Bytes(PairTokenizer):
    """A byte-level vocabulary as GPT-2 has it."""

    def __init__(self):
        backend = tokenizers.ByteLevelBPETokenizer()
        backend.train_from_iterator(TEXT * 4, vocab_size=450, special_tokens=["<s>", "</s>"], show_progress=False)
        self.tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=backend._tokenizer, eos_token="</s>")

    def encode_targets(self, texts):
        return [[*self.tokenizer.encode(" " + text), self.tokenizer.eos_token_id] for text in texts]

    encode_sources = encode_targets

    def decode(self, tokens):
        return self.tokenizer.decode(list(tokens), skip_special_tokens=True).strip()

    def token(self, token):
        return self.tokenizer.convert_ids_to_tokens(token)


def fairseq(folder, words):
    """A BPE vocabulary, its pieces ending in "@@"."""
    (folder / "codes").write_text("#version: 0.2\nt h\nth e</w>\na n\nan d</w>\nl o\nlo w\n", encoding="utf-8")
    pairs = BytePairs(folder / "codes")
    split = words.split if words else str
    symbols = sorted({piece for line in [*TEXT, *WORDS] for piece in pairs.split(split(line))})

    side = Side("en", Dictionary(symbols), pairs, words)
    return FairseqTokenizer(side, side)


@pytest.fixture(scope="module", params=["pieces", "bytes", "bpe", "bpe after Moses"])
def tokenizer(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("vocabulary")
    return {
        "pieces": Pieces,
        "bytes": Bytes,
        "bpe": lambda: fairseq(folder, None),
        "bpe after Moses": lambda: fairseq(folder, Moses("en")),
    }[request.param]()


@settings(deadline=None, max_examples=40)
@given(sentence=st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map(" ".join))
def test_words_of_sentences(tokenizer, sentence):
    [tokens] = tokenizer.encode_targets([sentence])
    text = tokenizer.decode(tokens)
    words = words_of(text, tokens, tokenizer)
    assert "".join(word.text for word in words) == text
    for word in words:
        assert word.text.isspace() or not any(map(str.isspace, word.text))
        assert bool(word.tokens) != word.text.isspace()
        assert word.tokens == sorted(set(word.tokens))
    written = {place for word in words for place in word.tokens}
    assert written == set(range(len(tokens) - 1)), "every token but the end belongs to a word"
    for place in written:
        before, word, after = around_word(text, tokens, place, tokenizer)
        assert before + word + after == text
        assert word


@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_any_tokens_at_all(tokenizer, data):
    """A model may write anything: half a character, an end in the middle, nothing."""
    [known] = tokenizer.encode_targets([" ".join(TEXT)])
    tokens = data.draw(st.lists(st.sampled_from(sorted({*known, *range(10)})), max_size=12))
    text = tokenizer.decode(tokens)
    words = words_of(text, tokens, tokenizer)
    assert "".join(word.text for word in words) == text
    assert all(0 <= place < len(tokens) for word in words for place in word.tokens)
    for place in range(len(tokens)):
        assert "".join(around_word(text, tokens, place, tokenizer)) == text


def spelled(tokenizer, sentence):
    [tokens] = tokenizer.encode_targets([sentence])
    text = tokenizer.decode(tokens)
    return [
        (word.text, "".join(tokenizer.token(tokens[place]) for place in word.tokens).strip("▁Ġ").replace("@@", ""))
        for word in words_of(text, tokens, tokenizer)
        if word.tokens
    ]


def test_a_word_has_its_own_pieces(tokenizer):
    sentence = "the earth lowest void and"
    assert spelled(tokenizer, sentence) == [(word, word) for word in sentence.split()]


def test_punctuation_is_no_part_of_a_word(tmp_path):
    tokenizer = fairseq(tmp_path, Moses("en"))
    assert [text for text, _ in spelled(tokenizer, "(and void; don't a-b the earth.")] == [
        *("(", "and", "void", ";", "don't", "a-b", "the", "earth", ".")
    ]


def test_a_script_without_spaces_is_cut_between_tokens():
    tokenizer = Pieces()
    words = spelled(tokenizer, "地は混沌であって")
    assert len(words) > 1
    assert all(text == pieces or "<0x" in pieces for text, pieces in words)


def test_the_word_of_a_token():
    tokenizer = Pieces()
    sentence = "the earth was void; and"
    [tokens] = tokenizer.encode_targets([sentence])
    seen = [around_word(sentence, tokens, place, tokenizer) for place in range(len(tokens))]
    assert list(dict.fromkeys(word for _, word, _ in seen)) == ["the", "earth", "was", "void", ";", "and", ""]
    assert seen[0] == ("", "the", " earth was void; and")
    assert seen[-1] == (sentence, "", "")


def test_special_tokens_belong_to_no_word():
    tokenizer = Pieces()
    [tokens] = tokenizer.encode_targets(["the earth"])
    start = tokenizer.processor.bos_id()
    first, *_ = words_of("the earth", [start, *tokens], tokenizer)
    assert first.text == "the"
    assert 0 not in first.tokens
    assert around_word("the earth", [start, *tokens], 0, tokenizer) == ("", "", "the earth")
