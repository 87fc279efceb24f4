"""What a datastore of any size will be and cost, before anything is built."""

from knn_seq.plan.key_rate import measure_key_rate
from knn_seq.plan.plan import MANY, ONE, Plan, make_plan

__all__ = ["MANY", "ONE", "Plan", "make_plan", "measure_key_rate"]
