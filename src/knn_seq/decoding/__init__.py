"""One step of decoding with neighbours, and the one place that opens retriever and combiner for settings."""

from knn_seq.decoding.attention import attention_of
from knn_seq.decoding.knn_decoder import KnnDecoder
from knn_seq.decoding.step import KnnBatch
from knn_seq.decoding.stored_settings import settings_name, store_settings, stored_settings
from knn_seq.decoding.translation import Translation

__all__ = [
    "KnnBatch",
    "KnnDecoder",
    "Translation",
    "attention_of",
    "settings_name",
    "store_settings",
    "stored_settings",
]
