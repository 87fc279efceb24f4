"""How a datastore was tuned, with text that must not come alive in a page."""

from __future__ import annotations

EVIL = "<script>alert(1)</script>"
TUNING = {
    "retriever": "full",
    "combiner": "fixed",
    "subset_size": None,
    "metric": "BLEU",
    "tokens": 1234,
    "base_log_likelihood": -2.0,
    "surface": {
        "k": [2, 4],
        "temperature": [1.0, 10.0],
        "weight": [0.25, 0.5],
        "log_likelihood": [[[-2.5, -1.5], [-1.25, -1.75]]] * 2,
    },
    "confirmed": [{"k": 4, "temperature": 10.0, "weight": 0.25, "log_likelihood": -1.25, "score": 31.37}],
    "chosen": {"k": 4, "temperature": 10.0, "weight": 0.25},
    "dev": f"{EVIL} dev.tsv",
    "date": "2026-11-01T10:00:00+00:00",
}
