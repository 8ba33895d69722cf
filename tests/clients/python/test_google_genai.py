"""The official Google client, in front of a model that speaks OpenAI's format."""

import enum
from collections.abc import Iterator

import pytest
from google import genai
from google.genai import errors, types
from pydantic import BaseModel
from running_gateway import TEXT, Gateway

ASKED = "What is the capital of France?"
FUNCTION = types.FunctionDeclaration(
    name="weather",
    parameters=types.Schema(
        type=types.Type.OBJECT, properties={"city": types.Schema(type=types.Type.STRING)}, required=["city"]
    ),
)
DECLARED = types.GenerateContentConfig(tools=[types.Tool(function_declarations=[FUNCTION])])


class City(BaseModel):
    name: str
    population: int | None = None


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


def weather(city: str) -> str:
    """The weather in a city."""
    return f"{city} is sunny"


def client_of(gateway: Gateway, key: str, version: str | None = None) -> genai.Client:
    return genai.Client(api_key=key, http_options=types.HttpOptions(base_url=gateway.url, api_version=version))


@pytest.fixture(scope="module")
def client(gateway: Gateway) -> Iterator[genai.Client]:
    with client_of(gateway, gateway.key) as made:
        yield made


@pytest.mark.parametrize("version", [None, "v1", "v1beta"])
def test_chat(gateway: Gateway, version: str | None) -> None:
    with client_of(gateway, gateway.key, version) as client:
        answer = client.models.generate_content(
            model="auto", contents=ASKED, config=types.GenerateContentConfig(system_instruction="Brief.", temperature=0)
        )
    assert answer.text == TEXT
    assert answer.candidates is not None
    assert answer.candidates[0].finish_reason is types.FinishReason.STOP
    assert answer.usage_metadata is not None
    counted = answer.usage_metadata
    assert (counted.prompt_token_count, counted.cached_content_token_count, counted.total_token_count) == (20, 4, 28)
    assert answer.response_id


def test_stream(client: genai.Client, gateway: Gateway) -> None:
    chunks = list(client.models.generate_content_stream(model=gateway.model, contents=ASKED))
    assert len(chunks) > 3
    assert "".join(chunk.text or "" for chunk in chunks) == TEXT
    assert chunks[-1].usage_metadata is not None
    assert chunks[-1].usage_metadata.candidates_token_count == 8


async def test_its_asynchronous_side(client: genai.Client, gateway: Gateway) -> None:
    answer = await client.aio.models.generate_content(model=gateway.model, contents=ASKED)
    stream = await client.aio.models.generate_content_stream(model=gateway.model, contents=ASKED)
    assert answer.text == "".join([chunk.text or "" async for chunk in stream]) == TEXT


def test_functions_and_what_they_gave(client: genai.Client, gateway: Gateway) -> None:
    first = client.models.generate_content(model=gateway.model, contents=ASKED, config=DECLARED)
    assert first.function_calls
    [call] = first.function_calls
    assert (call.name, call.args) == ("weather", {"city": "Paris"})
    assert first.candidates is not None
    assert first.candidates[0].content is not None
    given = types.Part.from_function_response(name="weather", response={"result": "sunny"})
    contents = [types.UserContent(ASKED), first.candidates[0].content, types.Content(role="user", parts=[given])]
    second = client.models.generate_content(model=gateway.model, contents=contents, config=DECLARED)
    assert second.text == 'The tool said: {"result":"sunny"}'


def test_a_streamed_function_call(client: genai.Client, gateway: Gateway) -> None:
    chunks = list(client.models.generate_content_stream(model=gateway.model, contents=ASKED, config=DECLARED))
    calls = [call for chunk in chunks for call in chunk.function_calls or ()]
    assert [call.args for call in calls] == [{"city": "Paris"}]


def test_functions_that_it_calls_by_itself(client: genai.Client, gateway: Gateway) -> None:
    config = types.GenerateContentConfig(tools=[weather], system_instruction="Brief.")
    session = client.chats.create(model=gateway.model, config=config)
    said = 'The tool said: {"result":"Paris is sunny"}'
    assert session.send_message(ASKED).text == said
    assert "".join(chunk.text or "" for chunk in session.send_message_stream("And now?")) == said


def test_a_session(client: genai.Client, gateway: Gateway) -> None:
    session = client.chats.create(model=gateway.model)
    assert session.send_message(ASKED).text == TEXT
    assert "".join(chunk.text or "" for chunk in session.send_message_stream("And again?")) == TEXT
    assert [content.role for content in session.get_history()][:3] == ["user", "model", "user"]


def test_structured_output(client: genai.Client, gateway: Gateway) -> None:
    def parsed(schema: object, kind: str = "application/json") -> object:
        config = types.GenerateContentConfig.model_validate({"response_mime_type": kind, "response_schema": schema})
        return client.models.generate_content(model=gateway.model, contents=ASKED, config=config).parsed

    assert parsed(City) == City(name="Paris", population=7)
    assert parsed(list[City]) == [City(name="Paris", population=7)]
    assert parsed(Colour, "text/x.enum") is Colour.RED
    config = types.GenerateContentConfig(response_mime_type="application/json", response_schema=list[City])
    stream = client.models.generate_content_stream(model=gateway.model, contents=ASKED, config=config)
    assert "".join(chunk.text or "" for chunk in stream) == '[{"name": "Paris", "population": 7}]'


def test_a_picture(client: genai.Client, gateway: Gateway) -> None:
    picture = types.Part.from_bytes(data=b"\x89PNG\r\n\xff\xfe", mime_type="image/png")
    assert client.models.generate_content(model=gateway.model, contents=[picture, ASKED]).text == TEXT


def test_counting_tokens(client: genai.Client, gateway: Gateway) -> None:
    assert client.models.count_tokens(model=gateway.model, contents=ASKED).total_tokens


def test_embeddings(client: genai.Client, gateway: Gateway) -> None:
    config = types.EmbedContentConfig(task_type="RETRIEVAL_QUERY", output_dimensionality=3)
    answer = client.models.embed_content(model=gateway.model, contents=["one", "two"], config=config)
    assert [row.values for row in answer.embeddings or ()] == [[0.25, -0.5, 1.0]] * 2


def test_models(client: genai.Client, gateway: Gateway) -> None:
    listed = [model.name for model in client.models.list()]
    assert f"models/{gateway.model}" in listed
    assert [model.name for model in client.models.list(config={"page_size": 1})] == listed
    assert client.models.get(model=gateway.model).supported_actions == [
        "generateContent",
        "streamGenerateContent",
        "countTokens",
    ]


@pytest.mark.parametrize(
    ("model", "code", "status", "says"),
    [("no-such-model", 404, "NOT_FOUND", "no-such-model"), ("draws", 400, "INVALID_ARGUMENT", "does not support")],
)
def test_a_model_that_cannot_answer(client: genai.Client, model: str, code: int, status: str, says: str) -> None:
    with pytest.raises(errors.ClientError, match=says) as caught:
        client.models.generate_content(model=model, contents=ASKED)
    assert (caught.value.code, caught.value.status) == (code, status)


def test_a_wrong_key(gateway: Gateway) -> None:
    with client_of(gateway, "bk-wrong") as client, pytest.raises(errors.ClientError, match="not known here") as caught:
        client.models.generate_content(model=gateway.model, contents=ASKED)
    assert (caught.value.code, caught.value.status) == (401, "UNAUTHENTICATED")


def test_a_spent_budget(gateway: Gateway) -> None:
    with client_of(gateway, gateway.poor_key) as client, pytest.raises(errors.ClientError, match="budget") as caught:
        list(client.models.generate_content_stream(model=gateway.model, contents=ASKED))
    assert (caught.value.code, caught.value.status) == (429, "RESOURCE_EXHAUSTED")


def test_a_provider_that_fails(client: genai.Client, gateway: Gateway) -> None:
    with pytest.raises(errors.ServerError, match="No model answered") as caught:
        client.models.generate_content(model=gateway.model, contents="[status 500]")
    assert (caught.value.code, caught.value.status) == (502, "UNAVAILABLE")
