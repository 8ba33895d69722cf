"""The first keys of a new deployment: one to administer it, one for the first app. Each secret is returned once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.stores import NewKey

AUTHOR = "first start"
FIRST = (NewKey("owner", "owner"), NewKey("first-app", "app"))


@dataclass(frozen=True, slots=True)
class FirstKeys:
    """Secrets, to be shown to whoever starts the service and kept nowhere."""

    owner: str
    app: str


class EmptyKeyStore(Protocol):
    """A key store that may be new, and that several replicas may find so at once."""

    async def create_in_empty(self, new: Sequence[NewKey], *, author: str) -> Sequence[str] | None:
        """Their secrets, all keys or none; None where any key exists already, revoked ones included."""
        ...


async def create_first_keys(store: EmptyKeyStore) -> FirstKeys | None:
    """For one caller only, however many start at once; None for everybody else and at every later start."""
    secrets = await store.create_in_empty(FIRST, author=AUTHOR)
    return None if secrets is None else FirstKeys(*secrets)
