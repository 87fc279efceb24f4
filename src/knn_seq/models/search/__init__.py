"""The search for translations: many sentences at a time, each entering and leaving the batch when it likes."""

from knn_seq.models.search.decoder import DecoderStep, RowDecoder
from knn_seq.models.search.loop import SearchLoop
from knn_seq.models.search.plan import SearchPlan, search_plan

__all__ = ["DecoderStep", "RowDecoder", "SearchLoop", "SearchPlan", "search_plan"]
