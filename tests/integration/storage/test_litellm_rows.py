"""LiteLLM's database is read in one snapshot by a user with read access only, and nothing is omitted silently."""

import json
from collections.abc import AsyncIterator

import pytest

from gateway.errors import StateError
from gateway.from_litellm.fields import KEYS, MEMBERSHIPS, TABLES, TEAMS
from gateway.storage.litellm_rows import parse_litellm_url, read_litellm
from tests.litellm_database import LiteLLMDatabase, hash_token

pytestmark = pytest.mark.integration
READER = "reader_of_litellm"


@pytest.fixture
async def theirs(postgres_directory: str) -> AsyncIterator[LiteLLMDatabase]:
    made = LiteLLMDatabase(postgres_directory)
    await made.make()
    await made.execute(f"CREATE ROLE {READER} LOGIN")
    yield made
    await made.remove()
    await made.execute(f"DROP ROLE {READER}")


async def read(theirs: LiteLLMDatabase) -> dict[str, list[dict[str, object]]]:
    url, schema = parse_litellm_url(theirs.url.replace("postgres@", f"{READER}@"))
    found = await read_litellm(url, schema, TABLES)
    return {table: [json.loads(row) for row in rows] for table, rows in found.items()}


async def test_a_user_that_may_only_read_is_enough(theirs: LiteLLMDatabase) -> None:
    await theirs.execute(f"GRANT USAGE ON SCHEMA litellm TO {READER}")
    await theirs.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA litellm TO {READER}")
    await theirs.add_key("sk-one", key_alias="one", max_budget=0.1, models=["a"], metadata={"tags": ["x"]})
    found = await read(theirs)
    [row] = found[KEYS]
    assert (row["token"], row["max_budget"], row["models"]) == (hash_token("sk-one"), 0.1, ["a"])
    assert row["metadata"] == {"tags": ["x"]}
    assert found[TEAMS] == []
    assert MEMBERSHIPS not in found, "as in an older version"


@pytest.mark.parametrize("has_schema", [False, True])
async def test_a_table_that_may_not_be_read_is_named(theirs: LiteLLMDatabase, has_schema: bool) -> None:
    if has_schema:
        await theirs.execute(f"GRANT USAGE ON SCHEMA litellm TO {READER}")
    await theirs.execute(f'GRANT SELECT ON litellm."{KEYS}" TO {READER}')
    with pytest.raises(StateError, match=rf"may not read .*{TEAMS}.*GRANT SELECT") as refused:
        await read(theirs)
    assert (KEYS in str(refused.value)) is not has_schema
