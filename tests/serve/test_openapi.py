"""Requests made up from the OpenAPI description: no error of the server, and no answer that it does not describe."""

from __future__ import annotations

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
EXAMPLES = 12  # of each operation


@pytest.fixture(scope="module")
def description(server):
    return schemathesis.openapi.from_dict(httpx.get(f"{server.url}/v1/openapi.json").json())


def test_every_answer_is_as_described(description, server):
    asked = []
    for found in description.get_all_operations():
        operation = found.ok()

        @given(case=operation.as_strategy())
        @settings(
            max_examples=EXAMPLES,
            derandomize=True,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        def run(case):
            case.call_and_validate(base_url=server.url, checks=CHECKS)

        run()
        asked.append(operation.label)
    assert len(asked) >= 20
