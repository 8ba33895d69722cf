"""The first keys of a new deployment: one to administer it, one for the first app. Each secret is returned once."""

from dataclasses import dataclass

from gateway.stores import KeyStore, NewKey

AUTHOR = "first start"


@dataclass(frozen=True, slots=True)
class FirstKeys:
    """Secrets, to be shown to whoever starts the service and kept nowhere."""

    owner: str
    app: str


async def create_first_keys(store: KeyStore) -> FirstKeys | None:
    """None where any key exists already, revoked ones included."""
    if await store.list():
        return None
    _, owner = await store.create(NewKey("owner", "owner"), author=AUTHOR)
    _, app = await store.create(NewKey("first-app", "app"), author=AUTHOR)
    return FirstKeys(owner, app)
