"""What fairseq imports for `--user-dir`: it lets fairseq read its checkpoints and makes our tasks known to it."""

from knn_seq.fairseq.generate import tasks  # noqa: F401
from knn_seq.fairseq.generate.checkpoints import allow_checkpoints

allow_checkpoints()
