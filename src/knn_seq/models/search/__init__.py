"""The search for translations: many sentences at a time, each entering and leaving the batch when it likes."""

from knn_seq.models.search.decoder import DecoderStep, RowDecoder
from knn_seq.models.search.distribution import Distribution
from knn_seq.models.search.loop import SearchLoop
from knn_seq.models.search.plan import SearchPlan, search_plan
from knn_seq.models.search.search_step import SearchStep

__all__ = ["DecoderStep", "Distribution", "RowDecoder", "SearchLoop", "SearchPlan", "SearchStep", "search_plan"]
