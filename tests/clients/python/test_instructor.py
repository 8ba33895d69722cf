"""Instructor over the OpenAI client."""

from typing import Any

import instructor
import openai
import pytest
from instructor.core import InstructorRetryException
from running_gateway import MESSAGES, City, Gateway

ASKED: Any = MESSAGES


def make_client(gateway: Gateway, mode: instructor.Mode = instructor.Mode.TOOLS, key: str = "") -> Any:
    return instructor.from_openai(openai.OpenAI(base_url=gateway.base_url, api_key=key or gateway.key), mode=mode)


@pytest.mark.parametrize("mode", [instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA])
def test_structured_output(gateway: Gateway, mode: instructor.Mode) -> None:
    found = make_client(gateway, mode).chat.completions.create(model=gateway.model, messages=ASKED, response_model=City)
    assert found.model_dump() == {"name": "Paris", "population": 7}


def test_stream(gateway: Gateway) -> None:
    partials = list(
        make_client(gateway).chat.completions.create_partial(model=gateway.model, messages=ASKED, response_model=City)
    )
    assert partials[-1].model_dump() == {"name": "Paris", "population": 7}


def test_errors(gateway: Gateway) -> None:
    with pytest.raises(InstructorRetryException, match="insufficient_quota"):
        make_client(gateway, key=gateway.poor_key).chat.completions.create(
            model=gateway.model, messages=ASKED, response_model=City, max_retries=0
        )
