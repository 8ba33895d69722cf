"""The schema that tests copy equals the result of the migrations."""

import pytest

from gateway.storage.database import migrate
from tests.newest_schema import make_newest
from tests.postgres_server import dump_postgres, empty_postgres

pytestmark = pytest.mark.integration


async def test_a_copy_is_what_the_migrations_make(postgres_directory: str) -> None:
    url = await empty_postgres(postgres_directory)
    await make_newest(url)
    await make_newest(url)
    copied = dump_postgres(postgres_directory)
    await migrate(await empty_postgres(postgres_directory))
    assert dump_postgres(postgres_directory) == copied
