"""The first keys of a new deployment: one for administration, one for the first app. Each secret is returned once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.stores import NewKey

AUTHOR = "first start"
FIRST = (NewKey("owner", "owner"), NewKey("first-app", "app"))


@dataclass(frozen=True, slots=True)
class FirstKeys:
    """Secrets to show to whoever starts the service; stored nowhere."""

    owner: str
    app: str


class EmptyKeyStore(Protocol):
    """A key store that may be new, and that several replicas may find empty at once."""

    async def create_in_empty(self, new: Sequence[NewKey], *, author: str) -> Sequence[str] | None:
        """Their secrets, creating all keys or none; None if any key exists already, even a revoked one."""
        ...


async def create_first_keys(store: EmptyKeyStore) -> FirstKeys | None:
    """Creates them for one caller only, however many start at once; None for all others and at later starts."""
    secrets = await store.create_in_empty(FIRST, author=AUTHOR)
    return None if secrets is None else FirstKeys(*secrets)
