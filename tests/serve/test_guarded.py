"""Who runs the model, and for how long: work of the background takes turns with requests, and ends with its client."""

from __future__ import annotations

import asyncio
import shutil
import threading
from functools import partial

import pytest
from starlette.requests import Request

from knn_seq.explain import changed_tokens
from knn_seq.serve.documents import QueuedTranslator
from knn_seq.serve.errors import RequestError
from knn_seq.serve.metrics import Metrics
from knn_seq.serve.service import Service, client_gone
from knn_seq.serve.settings import ServerSettings
from knn_seq.serve.stores import Stores


@pytest.fixture
def served(tmp_path, language_store):
    shutil.copytree(language_store, tmp_path / "store")
    stores = Stores.open({"numbers": tmp_path / "store"}, ServerSettings(), Metrics())
    yield stores.named("numbers")
    stores.close(10)


def test_documents_run_the_model_in_the_thread_of_the_queue_alone(served):
    translator = served.translator
    threads = []
    translator.model.network.register_forward_pre_hook(lambda *_: threads.append(threading.current_thread().name))

    async def work():
        queued = QueuedTranslator(served, asyncio.get_running_loop())
        made = await asyncio.to_thread(queued.translate, ["5 6 7", "8 9"])
        threads.clear()
        return (
            made,
            await asyncio.to_thread(queued.changed_tokens, made),
            await asyncio.to_thread(queued.attention, made),
        )

    made, changed, attention = asyncio.run(work())
    assert set(threads) == {"translations"}
    assert changed == changed_tokens(translator, made)
    assert len(attention) == len(made)


@pytest.mark.parametrize(
    ("left", "seconds", "status"), [(True, 60.0, 400), (False, 0.01, 503)], ids=["gone", "too long"]
)
def test_work_ends_when_its_client_has_gone_or_it_takes_too_long(served, left, seconds, status):
    async def receive():
        if not left:
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def guard():
        work = asyncio.Future()
        gone = partial(client_gone, Request({"type": "http"}, receive))
        with pytest.raises(RequestError) as error:
            await Service(ServerSettings(request_seconds=seconds)).guarded(served, work, gone)
        return error.value.status_code, work.cancelled()

    assert asyncio.run(guard()) == (status, True)
