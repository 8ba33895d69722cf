"""The first keys of a new deployment: one for administration, one for the first app. Each secret is returned once."""

from dataclasses import dataclass

from gateway.storage.sql.keys import SqlKeyStore
from gateway.stores import NewKey

AUTHOR = "first start"
FIRST = (NewKey("owner", "owner"), NewKey("first-app", "app"))


@dataclass(frozen=True, slots=True)
class FirstKeys:
    """Secrets to show to whoever starts the service; stored nowhere."""

    owner: str
    app: str


async def create_first_keys(store: SqlKeyStore) -> FirstKeys | None:
    """Creates them for one caller only, however many start at once; None for all others and at later starts."""
    secrets = await store.create_in_empty(FIRST, author=AUTHOR)
    return None if secrets is None else FirstKeys(*secrets)
