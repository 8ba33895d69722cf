"""What is said about a key that the address names but that cannot be changed."""

from typing import Any

import httpx
import pytest

from dashboards.gateway_client import GatewayClient
from dashboards.pages.key_changer import Chosen, as_it_is, why_not_changed
from dashboards.pages.keys import created
from tests.unit.dashboards.views import make_view

KEY: dict[str, Any] = {"id": "key_1", "name": "chat <app>", "revoked_at_us": None}


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (None, "There is no key with the id 'key_1'."),
        (KEY, None),
        (
            {**KEY, "revoked_at_us": 1_790_000_000_000_000},
            "The key 'chat <app>' was revoked on 21 Sep 2026: it cannot be used or changed again.",
        ),
    ],
)
def test_why_a_key_cannot_be_changed(key: dict[str, Any] | None, said: str | None) -> None:
    assert why_not_changed(Chosen("key_1", key)) == said


class Keys(GatewayClient):
    """A gateway with these keys."""

    def __init__(self, *keys: dict[str, Any]) -> None:
        super().__init__(httpx.AsyncClient(), "bk-1")
        self._keys = list(keys)

    async def get(self, path: str, **query: object) -> Any:
        assert (path, query["id"]) == ("/admin/v1/keys", "key_1")
        return {"keys": self._keys}


async def test_a_key_that_was_revoked_while_its_form_was_open_is_not_changed() -> None:
    """The second of two owners read nothing, and the revoked key had another team."""
    assert await as_it_is(make_view(gateway=Keys(KEY)), "key_1") == KEY
    with pytest.raises(ValueError, match="was revoked on 21 Sep 2026"):
        await as_it_is(make_view(gateway=Keys({**KEY, "revoked_at_us": 1_790_000_000_000_000})), "key_1")
    with pytest.raises(ValueError, match="There is no key"):
        await as_it_is(make_view(gateway=Keys()), "key_1")


def test_a_key_that_came_from_litellm_says_so() -> None:
    came = {"created_at_us": 1_790_000_000_000_000, "taken_over_from": "LiteLLM"}
    assert created(came).text == "21 Sep 2026, from LiteLLM"
    assert created({**came, "taken_over_from": None}).text == "21 Sep 2026"
