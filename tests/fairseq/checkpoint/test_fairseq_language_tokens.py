"""Models whose language tokens tell what to translate from and to."""

from __future__ import annotations

import pytest
import torch
from fairseq_files import EOS, OPTIONS, TARGET_WORDS, Reference, make_weights, write_checkpoint, write_dictionary

from knn_seq.errors import KnnSeqError
from knn_seq.models import TokenPair, load_model
from knn_seq.settings import DecodingSettings, ModelSettings

LANGUAGES = ["de", "en", "fr"]
TASK = {
    "task": "translation_multi_simple_epoch",
    "share_all_embeddings": True,
    "source_lang": None,
    "target_lang": None,
    "encoder_langtok": "src",
    "decoder_langtok": True,
    "langs": LANGUAGES,
}
ROWS = 4 + len(TARGET_WORDS) + len(LANGUAGES)
FRENCH, GERMAN = ROWS - 1, ROWS - 3


def write(folder, **changes):
    options = OPTIONS | TASK | changes
    weights = make_weights(options, (ROWS, ROWS))
    path = write_checkpoint(folder, TASK | changes, weights, style="args")
    for language in LANGUAGES:
        write_dictionary(folder / f"dict.{language}.txt", TARGET_WORDS)
    return path, Reference(weights, options)


def test_language_tokens_on_both_sides(tmp_path):
    path, reference = write(tmp_path)
    model = load_model(ModelSettings(f"fairseq:{path}", source_lang="de", target_lang="fr", device="cpu"))
    sources = model.tokenizer.encode_sources(["t0 t1", "t7 t5 t3"])
    assert sources == [[GERMAN, 4, 5, EOS], [GERMAN, 11, 9, 7, EOS]]
    assert model.tokenizer.encode_targets(["t2"]) == [[6, EOS]]
    assert model.prefix == [EOS, FRENCH]
    _, log_probs = model.score([TokenPair(sources[1], [6, 7, EOS])])
    wanted = reference.log_probs(sources[1], [EOS, FRENCH, 6, 7])[1:]
    torch.testing.assert_close(log_probs.double(), wanted, atol=1e-5, rtol=1e-5)
    outputs = model.generate(sources, DecodingSettings(beam_size=1, max_length=9))
    assert [best.tokens for (best,) in outputs] == [reference.greedy(source, [EOS, FRENCH], 9) for source in sources]


@pytest.mark.parametrize(
    ("changes", "before", "prefix"),
    [
        ({"encoder_langtok": "tgt", "decoder_langtok": False}, [FRENCH], [EOS]),
        ({"encoder_langtok": None}, [], [EOS, FRENCH]),
        ({"langs": None, "lang_pairs": "fr-de,de-en"}, [GERMAN], [EOS, FRENCH]),
        ({"langs": "de,en,fr"}, [GERMAN], [EOS, FRENCH]),
        ({"langs": None, "lang_dict": "/nowhere/languages.txt"}, [GERMAN], [EOS, FRENCH]),
    ],
)
def test_where_language_tokens_stand(changes, before, prefix, tmp_path):
    path, _ = write(tmp_path, **changes)
    (tmp_path / "languages.txt").write_text("de\nen\nfr\n")
    model = load_model(ModelSettings(f"fairseq:{path}", source_lang="de", target_lang="fr", device="cpu"))
    assert model.tokenizer.encode_sources(["t0"]) == [[*before, 4, EOS]]
    assert model.prefix == prefix


def test_a_dictionary_that_has_the_language_tokens_already(tmp_path):
    path, _ = write(tmp_path, fixed_dictionary="/nowhere/model_dict.txt")
    write_dictionary(tmp_path / "model_dict.txt", [*TARGET_WORDS, *(f"__{language}__" for language in LANGUAGES)])
    model = load_model(ModelSettings(f"fairseq:{path}", source_lang="de", target_lang="fr", device="cpu"))
    assert model.tokenizer.encode_sources(["t0"]) == [[GERMAN, 4, EOS]]


def test_languages_are_needed_and_checked(tmp_path):
    path, _ = write(tmp_path)
    with pytest.raises(KnnSeqError, match="give --source-lang and --target-lang, for example de, en, fr"):
        load_model(ModelSettings(f"fairseq:{path}"))
    with pytest.raises(KnnSeqError, match="has no language 'pt'; it has de, en, fr"):
        load_model(ModelSettings(f"fairseq:{path}", source_lang="pt", target_lang="fr"))
