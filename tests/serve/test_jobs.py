"""Work in the background: how many jobs are kept, and what becomes of one that nobody waits for."""

from __future__ import annotations

import threading

import pytest

from knn_seq.serve.errors import RequestError
from knn_seq.serve.jobs import MOST, Jobs


@pytest.fixture
def jobs(tmp_path):
    jobs = Jobs(tmp_path)
    yield jobs
    jobs.close()


def ended(jobs, job):
    while jobs.state(job.id).state in ("waiting", "running"):
        threading.Event().wait(0.01)
    return jobs.state(job.id)


def test_finished_jobs_make_place_for_others_and_unfinished_ones_do_not(jobs):
    first = jobs.create("document", "first.txt")
    jobs.start(first, lambda job: {"words": 1})
    assert ended(jobs, first).report == {"words": 1}
    waiting = [jobs.create("document", f"{number}.txt") for number in range(MOST - 1)]
    last = jobs.create("document", "last.txt")
    with pytest.raises(RequestError):
        jobs.state(first.id)
    with pytest.raises(RequestError) as error:
        jobs.create("document", "more.txt")
    assert (error.value.status_code, error.value.headers["Retry-After"]) == (503, "30")
    assert {jobs.state(job.id).state for job in (*waiting, last)} == {"waiting"}


def test_a_job_that_nobody_waits_for_ends(jobs):
    def work(job):
        while True:
            job.progress(1)

    job = jobs.create("document", "long.txt")
    jobs.start(job, work)
    while not jobs.state(job.id).done:
        threading.Event().wait(0.01)
    job.cancelled = True
    state = ended(jobs, job)
    assert (state.state, state.error) == ("failed", "The client has gone away.")
