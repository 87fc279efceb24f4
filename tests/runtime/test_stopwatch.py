from __future__ import annotations

import pytest

from knn_seq.runtime import stopwatch
from knn_seq.runtime.stopwatch import Stopwatch


def test_seconds_add_up_by_part_also_after_an_error(monkeypatch):
    seconds = iter([1.0, 3.0, 10.0, 11.0, 20.0, 24.0])
    monkeypatch.setattr(stopwatch.time, "perf_counter", lambda: next(seconds))
    watch = Stopwatch()
    with watch.timing("search"):
        pass
    with watch.timing("model"):
        pass
    with pytest.raises(ValueError, match="mine"), watch.timing("search"):
        raise ValueError("mine")
    assert watch.seconds == {"search": 6.0, "model": 1.0}
