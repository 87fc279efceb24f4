from __future__ import annotations

from knn_seq.demo.run import settings_in_words
from knn_seq.settings import SearchSettings


def test_a_trained_combiner_is_named_without_a_temperature():
    assert settings_in_words(SearchSettings(combiner="learned", k=32)) == (
        "combiner trained while building: learned, k 32"
    )
    assert settings_in_words(SearchSettings(k=8, temperature=10.0, weight=0.6)) == (
        "settings found while building: k 8, temperature 10, weight 0.6"
    )
