"""The official OpenAI client as apps on Azure use it: its endpoint and key are changed, and nothing else."""

import io
import wave
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from running_gateway import MESSAGES, TEXT, Gateway

ASKED: Any = MESSAGES
VERSION = "2026-10-01"


@pytest.fixture(scope="module")
def client(gateway: Gateway) -> Iterator[openai.AzureOpenAI]:
    with openai.AzureOpenAI(azure_endpoint=gateway.url, api_key=gateway.key, api_version=VERSION) as made:
        yield made


def test_chat_and_stream(client: openai.AzureOpenAI, gateway: Gateway) -> None:
    for model in ("auto", gateway.model):
        assert client.chat.completions.create(model=model, messages=ASKED).choices[0].message.content == TEXT
    chunks = client.chat.completions.create(model=gateway.model, messages=ASKED, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == TEXT


def test_the_deployment_is_the_model_whatever_the_body_says(gateway: Gateway) -> None:
    with openai.AzureOpenAI(
        azure_endpoint=gateway.url, azure_deployment=gateway.model, api_key=gateway.key, api_version=VERSION
    ) as client:
        answer = client.chat.completions.create(model="another-name", messages=ASKED)
    assert answer.choices[0].message.content == TEXT


def test_what_has_no_deployment_in_its_address(client: openai.AzureOpenAI, gateway: Gateway) -> None:
    assert client.responses.create(model=gateway.model, input="What is the capital of France?").output_text == TEXT
    assert gateway.model in [model.id for model in client.models.list()]


def test_embeddings(client: openai.AzureOpenAI, gateway: Gateway) -> None:
    answer = client.embeddings.create(model=gateway.model, input=["one", "two"])
    assert [row.embedding for row in answer.data] == [[0.25, -0.5, 1.0]] * 2


def test_a_recording(client: openai.AzureOpenAI) -> None:
    """A form, whose field says which model."""
    written = io.BytesIO()
    with wave.open(written, "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(bytes(32_000))
    heard = client.audio.transcriptions.create(model="listens", file=("silence.wav", written.getvalue(), "audio/wav"))
    assert heard.text == "The quick brown fox."


async def test_errors_and_the_asynchronous_client(gateway: Gateway) -> None:
    async with openai.AsyncAzureOpenAI(
        azure_endpoint=gateway.url, api_key="bk-wrong", api_version=VERSION, max_retries=0
    ) as stranger:
        with pytest.raises(openai.AuthenticationError, match="not known here"):
            await stranger.chat.completions.create(model="auto", messages=ASKED)
    async with openai.AsyncAzureOpenAI(
        azure_endpoint=gateway.url, azure_ad_token=gateway.key, api_version=VERSION, max_retries=0
    ) as client:
        with pytest.raises(openai.NotFoundError, match="gpt-none"):
            await client.chat.completions.create(model="gpt-none", messages=ASKED)
