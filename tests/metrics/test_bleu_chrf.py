from __future__ import annotations

import numpy as np
import pytest
import sacrebleu
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest

from knn_seq.decoding.translation import Translation
from knn_seq.errors import InvalidSetting
from knn_seq.evaluate import bleu, chrf, sentence_chrf
from knn_seq.metrics import METRICS

WORDS = ("the", "a", "cat", "dog", "house", "sees", "eats", "sleeps", "near", "under", "old", "red", "and", "never")
GENERATOR = np.random.default_rng(3)


def sentence(length):
    return " ".join(GENERATOR.choice(WORDS, length))


def worsened(sentences, share):
    """The sentences with some of their words replaced."""
    return [
        " ".join(word if GENERATOR.random() > share else str(GENERATOR.choice(WORDS)) for word in text.split())
        for text in sentences
    ]


REFERENCES = [sentence(length) for length in GENERATOR.integers(4, 20, 150)]
SYSTEMS = {f"{share}": worsened(REFERENCES, share) for share in (0.3, 0.28, 0.32, 0.36, 0.5)}


@pytest.mark.parametrize(("name", "library"), [("bleu", BLEU), ("chrf", CHRF)])
def test_scores_and_p_values_are_those_of_sacrebleu(name, library):
    signatures, results = PairedTest(
        list(SYSTEMS.items()), {name: library()}, [REFERENCES], test_type="bs", n_samples=1000
    )()
    [(library_name, signature)] = signatures.items()
    scores = METRICS.get(name)().scores(SYSTEMS, REFERENCES, REFERENCES)
    assert list(scores) == list(SYSTEMS)
    for score, expected in zip(scores.values(), results[library_name], strict=True):
        assert score.value == pytest.approx(expected.score, abs=1e-9)
        # It sums in float32, so that a resample that lies on the border may fall on its other side.
        assert score.p_value == (None if expected.p_value is None else pytest.approx(expected.p_value, abs=1.5 / 1001))
        assert score.signature == str(signature)
    p_values = [score.p_value for score in scores.values()][1:]
    assert max(p_values) > 0.05 > 0.001 > min(p_values)


@pytest.mark.parametrize("name", ["bleu", "chrf"])
def test_no_difference_is_not_significant(name):
    first = SYSTEMS["0.3"]
    unrelated = ["1 2 3"] * len(first)  # nothing in common with the references: two systems with the score 0
    scores = METRICS.get(name)().scores({"first": first, "same": list(first)}, REFERENCES, [])
    assert (scores["first"].p_value, scores["same"].p_value) == (None, 1.0)
    scores = METRICS.get(name)().scores({"x": unrelated, "y": ["4 5"] * len(first)}, REFERENCES, [])
    assert scores["y"].p_value == 1.0


def test_one_system_has_a_score_and_no_p_value():
    texts = [Translation(text, "source", [1, 2]) for text in SYSTEMS["0.5"]]
    assert bleu(texts, REFERENCES) == (
        pytest.approx(sacrebleu.corpus_bleu(SYSTEMS["0.5"], [REFERENCES]).score),
        f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{sacrebleu.__version__}",
        None,
    )
    assert chrf(texts, REFERENCES) == (
        pytest.approx(sacrebleu.corpus_chrf(SYSTEMS["0.5"], [REFERENCES]).score),
        f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:{sacrebleu.__version__}",
        None,
    )


def test_sentence_chrf_scores_each_sentence():
    scores = sentence_chrf(["the old cat", "", "xyz", "the old dog"], ["the old cat", "a cat", "dogs", "the old cat"])
    assert scores == pytest.approx([100, 0, 0, sacrebleu.sentence_chrf("the old dog", ["the old cat"]).score])
    assert 0 < scores[3] < 100


def test_metrics_are_found_by_name():
    assert {"bleu", "chrf"} <= set(METRICS.names())
    for name in ("bleu", "chrf"):
        metric = METRICS.get(name)()
        metric.require()
        assert metric.name.lower() == name
    with pytest.raises(InvalidSetting, match="'meteor': choose from bleu, chrf"):
        METRICS.get("meteor")
