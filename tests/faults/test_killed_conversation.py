"""kill -9, a damaged file and one that cannot be opened, in the middle of a conversation that the gateway keeps: as
responses that go on from one another, and under a name of its own."""

from collections.abc import Iterator
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


@pytest.fixture
def provider() -> Iterator[str]:
    with provider_process() as process:
        yield process.url


@pytest.fixture
def gateway(provider: str, tmp_path: Path) -> Iterator[Replica]:
    home = tmp_path / "home"
    database = f"sqlite+aiosqlite:///{home}/breakeven.db"
    gateway = Replica(home, provider=provider, database=database, redis="", workers=1, configuration=CONFIGURATION)
    start(gateway)
    yield gateway
    gateway.terminate()
    gateway.wait()


def start(gateway: Replica) -> None:
    gateway.start()
    gateway.wait_until_ready()


def test_a_conversation_goes_on_after_kill_9_and_after_a_restart(gateway: Replica) -> None:
    file = gateway.home / "kept-responses.db"
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=gateway.owner_key(), max_retries=5) as client:
        first = client.responses.create(model="auto", input=f"first, {SECRET}")
        second = client.responses.create(model="auto", input="second", previous_response_id=first.id)
        deleted = client.responses.create(model="auto", input="third", previous_response_id=second.id)
        client.responses.delete(deleted.id)
        unkept = client.responses.create(model="auto", input="not to be kept", store=False)
        gateway.kill()
        assert file.stat().st_mode & 0o777 == 0o600
        for path in gateway.home.rglob("*"):
            assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path

        start(gateway)
        third = client.responses.create(model="auto", input="third", previous_response_id=second.id)
        assert third.previous_response_id == second.id
        items = client.responses.input_items.list(third.id, order="asc").data
        assert [one.role for one in items if one.type == "message"] == ["user", "assistant"] * 2 + ["user"]
        assert SECRET in repr(items[0])
        for gone in (deleted, unkept):
            with pytest.raises(openai.NotFoundError):
                client.responses.retrieve(gone.id)
        gateway.terminate()
        assert gateway.wait() == 0
        assert not file.with_name(f"{file.name}-wal").exists(), "all of it is in the file"

        start(gateway)
        assert client.responses.retrieve(third.id).output_text == third.output_text
        client.responses.create(model="auto", input="fourth", previous_response_id=third.id)


def test_what_is_wrong_with_the_file_costs_the_conversations_in_it_and_no_answer(gateway: Replica) -> None:
    file = gateway.home / "kept-responses.db"
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=gateway.owner_key(), max_retries=0) as client:

        def converse() -> str:
            first = client.responses.create(model="auto", input="first")
            return client.responses.create(model="auto", input="second", previous_response_id=first.id).id

        earlier = converse()
        gateway.kill()
        for path in (file, file.with_name(f"{file.name}-wal")):
            path.write_bytes(b"torn" * (path.stat().st_size // 4))
        start(gateway)
        with pytest.raises(openai.BadRequestError, match="is not kept here"):
            client.responses.create(model="auto", input="third", previous_response_id=earlier)
        later = converse()
        assert "kept-responses.db is damaged" in gateway.output

        gateway.kill()
        file.rename(gateway.home / "aside")
        file.mkdir()
        start(gateway)
        assert "responses are kept in memory until the next start" in gateway.output
        with pytest.raises(openai.BadRequestError, match="is not kept here"):
            client.responses.create(model="auto", input="third", previous_response_id=later)
        converse()


def test_a_conversation_of_its_own_name_goes_on_after_kill_9(gateway: Replica) -> None:
    """With what its turns had added, and with nothing of one that was under way."""
    file = gateway.home / "kept-conversations.db"
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=gateway.owner_key(), max_retries=5) as client:
        made = client.conversations.create(metadata={"topic": SECRET})
        client.responses.create(model="auto", input=f"first, {SECRET}", conversation=made.id)
        client.responses.create(model="auto", input="second", conversation=made.id)
        forgotten = client.conversations.create(items=[{"role": "user", "content": "forgotten"}])
        client.conversations.delete(forgotten.id)
        items = [one.to_dict() for one in client.conversations.items.list(made.id, order="asc")]
        stream = client.responses.create(model="auto", input="killed", conversation=made.id, stream=True)
        next(iter(stream))
        gateway.kill()
        stream.close()
        assert file.stat().st_mode & 0o777 == 0o600
        for path in gateway.home.rglob("*"):
            assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path

        start(gateway)
        assert client.conversations.retrieve(made.id).to_dict() == made.to_dict()
        kept = [one.to_dict() for one in client.conversations.items.list(made.id, order="asc")]
        assert kept[:4] == items
        assert [one["role"] for one in items] == ["user", "assistant"] * 2
        assert len(kept) in (4, 6), "the answer may have ended before the process did; half a turn is never there"
        client.responses.create(model="auto", input="third", conversation=made.id)
        assert len(list(client.conversations.items.list(made.id, limit=100))) == len(kept) + 2
        with pytest.raises(openai.NotFoundError):
            client.conversations.retrieve(forgotten.id)
        gateway.terminate()
        assert gateway.wait() == 0
        assert not file.with_name(f"{file.name}-wal").exists(), "all of it is in the file"

        start(gateway)
        assert [one.to_dict() for one in client.conversations.items.list(made.id, order="asc")][: len(kept)] == kept


def test_what_is_wrong_with_its_file_costs_the_conversations_in_it_alone(gateway: Replica) -> None:
    file = gateway.home / "kept-conversations.db"
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=gateway.owner_key(), max_retries=0) as client:
        made = client.conversations.create()
        response = client.responses.create(model="auto", input="first", conversation=made.id)
        gateway.kill()
        for path in (file, file.with_name(f"{file.name}-wal")):
            path.write_bytes(b"torn" * (path.stat().st_size // 4))
        start(gateway)
        with pytest.raises(openai.NotFoundError, match="is not kept here for this key"):
            client.responses.create(model="auto", input="second", conversation=made.id)
        assert client.responses.retrieve(response.id).output_text == response.output_text
        again = client.conversations.create()
        client.responses.create(model="auto", input="first", conversation=again.id)
        assert "kept-conversations.db is damaged" in gateway.output
