"""kill -9, a damaged file and one that cannot be opened, in the middle of a conversation that the gateway stores: as
responses that continue one another, and as a named conversation."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import openai
import pytest

from tests.faults.fleet.replica import Replica
from tests.scripted_provider.process import provider_process

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
CONFIGURATION = """\
engine: {{is_enabled: false}}
simulated_hosted: never
backends: {{provider: {{base_url: {provider}, provider: openai, has_responses: false}}}}
"""
SECRET = "what-nobody-else-may-read"
RESPONSES, CONVERSATIONS = "kept-responses.db", "kept-conversations.db"


@dataclass(frozen=True, slots=True)
class Keeper:
    """A gateway that stores conversations, and the key it made at its first start."""

    gateway: Replica
    key: str

    @property
    def home(self) -> Path:
        return self.gateway.home

    @property
    def output(self) -> str:
        """Its output since it was last started."""
        return self.gateway.output

    def client(self, *, max_retries: int = 0) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.gateway.url}/v1", api_key=self.key, max_retries=max_retries)

    def start(self) -> None:
        self.gateway.start()
        self.gateway.wait_until_ready()

    def kill(self) -> None:
        self.gateway.kill()

    def damage(self, name: str) -> None:
        file = self.home / name
        for path in (file, file.with_name(f"{name}-wal")):
            path.write_bytes(b"torn" * (path.stat().st_size // 4))


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keeper]:
    home = tmp_path_factory.mktemp("conversations") / "home"
    database = f"sqlite+aiosqlite:///{home}/breakeven.db"
    with provider_process() as provider:
        gateway = Replica(
            home, provider=provider.url, database=database, redis="", workers=1, configuration=CONFIGURATION
        )
        try:
            gateway.start()
            gateway.wait_until_ready()
            key = gateway.owner_key()
            assert key is not None
            yield Keeper(gateway, key)
        finally:
            gateway.terminate()
            gateway.wait()


@pytest.fixture
def keeper(started: Keeper) -> Keeper:
    """A keeper that runs, however the previous test ended."""
    if not started.gateway.is_running:
        started.start()
    return started


def test_a_conversation_goes_on_after_kill_9_and_after_a_restart(keeper: Keeper) -> None:
    """As responses that continue one another, and as a named conversation."""
    with keeper.client(max_retries=5) as client:
        conversations = [responses_that_go_on(client), one_of_a_name(client)]
        for one in conversations:
            next(one)
        keeper.kill()
        for name in (RESPONSES, CONVERSATIONS):
            assert (keeper.home / name).stat().st_mode & 0o777 == 0o600
        for path in keeper.home.rglob("*"):
            assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path

        keeper.start()
        for one in conversations:
            next(one)
        keeper.gateway.terminate()
        assert keeper.gateway.wait() == 0
        for name in (RESPONSES, CONVERSATIONS):
            assert not (keeper.home / f"{name}-wal").exists(), "all of it is in the file"

        keeper.start()
        for one in conversations:
            assert next(one, "ended") == "ended"


def responses_that_go_on(client: openai.OpenAI) -> Iterator[None]:
    """A conversation of responses; yields before the process is killed, and before it is told to end."""
    first = client.responses.create(model="auto", input=f"first, {SECRET}")
    second = client.responses.create(model="auto", input="second", previous_response_id=first.id)
    deleted = client.responses.create(model="auto", input="third", previous_response_id=second.id)
    client.responses.delete(deleted.id)
    unkept = client.responses.create(model="auto", input="not to be kept", store=False)
    yield
    third = client.responses.create(model="auto", input="third", previous_response_id=second.id)
    assert third.previous_response_id == second.id
    items = client.responses.input_items.list(third.id, order="asc").data
    assert [one.role for one in items if one.type == "message"] == ["user", "assistant"] * 2 + ["user"]
    assert SECRET in repr(items[0])
    for gone in (deleted, unkept):
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(gone.id)
    yield
    assert client.responses.retrieve(third.id).output_text == third.output_text
    client.responses.create(model="auto", input="fourth", previous_response_id=third.id)


def one_of_a_name(client: openai.OpenAI) -> Iterator[None]:
    """A named conversation: it has what its turns added, and nothing of a turn that was under way. Yields where the
    other one does."""
    made = client.conversations.create(metadata={"topic": SECRET})
    client.responses.create(model="auto", input=f"first, {SECRET}", conversation=made.id)
    client.responses.create(model="auto", input="second", conversation=made.id)
    forgotten = client.conversations.create(items=[{"role": "user", "content": "forgotten"}])
    client.conversations.delete(forgotten.id)
    items = [one.to_dict() for one in client.conversations.items.list(made.id, order="asc")]
    stream = client.responses.create(model="auto", input="killed", conversation=made.id, stream=True)
    next(iter(stream))
    yield
    stream.close()
    assert client.conversations.retrieve(made.id).to_dict() == made.to_dict()
    kept = [one.to_dict() for one in client.conversations.items.list(made.id, order="asc")]
    assert kept[:4] == items
    assert [one["role"] for one in items] == ["user", "assistant"] * 2
    assert len(kept) in (4, 6), "the answer may have ended before the process did; half a turn is never there"
    client.responses.create(model="auto", input="third", conversation=made.id)
    assert len(list(client.conversations.items.list(made.id, limit=100))) == len(kept) + 2
    with pytest.raises(openai.NotFoundError):
        client.conversations.retrieve(forgotten.id)
    yield
    assert [one.to_dict() for one in client.conversations.items.list(made.id, order="asc")][: len(kept)] == kept


def test_what_is_wrong_with_its_file_costs_the_conversations_in_it_alone(keeper: Keeper) -> None:
    with keeper.client() as client:
        made = client.conversations.create()
        response = client.responses.create(model="auto", input="first", conversation=made.id)
        keeper.kill()
        keeper.damage(CONVERSATIONS)
        keeper.start()
        with pytest.raises(openai.NotFoundError, match="is not kept here for this key"):
            client.responses.create(model="auto", input="second", conversation=made.id)
        assert client.responses.retrieve(response.id).output_text == response.output_text
        again = client.conversations.create()
        client.responses.create(model="auto", input="first", conversation=again.id)
        assert f"{CONVERSATIONS} is damaged" in keeper.output


def test_what_is_wrong_with_the_file_costs_the_conversations_in_it_and_no_answer(keeper: Keeper) -> None:
    file = keeper.home / RESPONSES
    with keeper.client() as client:

        def converse() -> str:
            first = client.responses.create(model="auto", input="first")
            return client.responses.create(model="auto", input="second", previous_response_id=first.id).id

        earlier = converse()
        keeper.kill()
        keeper.damage(RESPONSES)
        keeper.start()
        with pytest.raises(openai.BadRequestError, match="is not kept here"):
            client.responses.create(model="auto", input="third", previous_response_id=earlier)
        later = converse()
        assert f"{RESPONSES} is damaged" in keeper.output

        keeper.kill()
        file.rename(keeper.home / "aside")
        file.mkdir()
        keeper.start()
        assert "responses are kept in memory until the next start" in keeper.output
        with pytest.raises(openai.BadRequestError, match="is not kept here"):
            client.responses.create(model="auto", input="third", previous_response_id=later)
        converse()
