"""What an index costs to build and to search, before it is: work counted on paper, times constants of a machine."""

from knn_seq.plan.cost.constants import Costs
from knn_seq.plan.cost.fit import Observation, fit
from knn_seq.plan.cost.job import Job, Search, Work
from knn_seq.plan.cost.measure import measure_costs

__all__ = ["Costs", "Job", "Observation", "Search", "Work", "fit", "measure_costs"]
