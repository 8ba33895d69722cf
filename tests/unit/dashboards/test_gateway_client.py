"""How a page's questions become requests to the gateway."""

from typing import Any, cast

import httpx
import pytest

from dashboards.frame import View
from dashboards.gateway_client import GatewayClient, GatewayRefused, GatewayUnreachable
from dashboards.pages import audit, request
from dashboards.suggestions import NEWEST_KEYS, load_suggestions


class Gateway:
    """Returns the keys that it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.paths: list[str] = []

    def answer(self, asked: httpx.Request) -> httpx.Response:
        self.asked.append(asked.url.query.decode())
        self.paths.append(asked.url.path)
        ids = asked.url.params.get_list("id")
        return httpx.Response(
            200, json={"models": [], "keys": [{"id": one, "name": f"name of {one}"} for one in ids if one[0] == "k"]}
        )

    def client(self) -> GatewayClient:
        http = httpx.AsyncClient(base_url="http://gateway", transport=httpx.MockTransport(self.answer))
        return GatewayClient(http, "bk-ui")


class Allowed:
    """A session that may do everything."""

    def may(self, *permissions: str) -> bool:
        return bool(permissions)


class Shown:
    def __init__(self, gateway: GatewayClient) -> None:
        self.gateway = gateway
        self.session = Allowed()


async def test_a_list_is_a_parameter_for_each_and_none_is_left_out() -> None:
    gateway = Gateway()
    await gateway.client().get("/x", id=["a b", "c"], before=None, limit=50)
    assert gateway.asked == ["id=a+b&id=c&limit=50"]


async def test_pages_ask_for_the_keys_that_they_name_and_no_others() -> None:
    """There may be 50,000 keys."""
    gateway = Gateway()
    view = cast(View, Shown(gateway.client()))
    names: Any = await audit.key_names(view, ["k1", "rules", "k2"])
    assert names == {"k1": "name of k1", "k2": "name of k2"}
    assert await request.key_name(view, "k3") == "name of k3"
    assert await request.key_name(view, "gone") is None
    asked = ("id=k1&id=rules&id=k2", "id=k3", "id=gone")
    assert gateway.asked == [f"{one}&last_requests=False" for one in asked]


async def test_a_form_does_not_ask_for_every_key_to_suggest_some() -> None:
    gateway = Gateway()
    await load_suggestions(cast(View, Shown(gateway.client())))
    assert dict(zip(gateway.paths, gateway.asked, strict=True)) == {
        "/admin/v1/models": "",
        "/admin/v1/keys": f"limit={NEWEST_KEYS}&last_requests=False",
    }


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (httpx.Response(200, html="<h1>Sign in to the proxy</h1>"), "Something other than the gateway"),
        (httpx.Response(301, headers={"location": "https://gateway/"}), "The gateway answered 301"),
    ],
)
async def test_a_service_in_the_gateways_place_is_a_refusal_with_a_sentence(answer: httpx.Response, said: str) -> None:
    """The sign-in used to end in an internal error, and the attempt counted towards its limit."""
    http = httpx.AsyncClient(base_url="http://gateway", transport=httpx.MockTransport(lambda _: answer))
    with pytest.raises(GatewayRefused, match=said):
        await GatewayClient(http, "bk-ui").get("/admin/v1/me")


async def test_half_a_character_is_refused_with_a_sentence() -> None:
    """A browser sends half of a surrogate pair as it was pasted. The page used to show nothing."""
    gateway = Gateway()
    for asked in (gateway.client().get("/x", find="\ud800b"), gateway.client().put("/x", {"name": "\ud800b"})):
        with pytest.raises(GatewayRefused, match="not valid Unicode"):
            await asked
    assert gateway.asked == []


@pytest.mark.parametrize(
    ("method", "error", "advice"),
    [
        ("get", httpx.ReadTimeout, ""),
        ("post", httpx.ReadTimeout, ""),
        ("put", httpx.ConnectError, " Nothing was sent to it: try again once it runs."),
        ("put", httpx.ReadTimeout, " It may have done it all the same: look before you try again."),
        ("patch", httpx.ReadError, " It may have done it all the same: look before you try again."),
    ],
)
async def test_who_asked_for_a_change_and_heard_nothing_is_told_whether_to_ask_again(
    method: str, error: type[httpx.HTTPError], advice: str
) -> None:
    def fail(asked: httpx.Request) -> httpx.Response:
        raise error("")

    http = httpx.AsyncClient(base_url="http://gateway", transport=httpx.MockTransport(fail))
    gateway = GatewayClient(http, "bk-ui")
    path, given = "/rules/replay" if method == "post" else "/x", {} if method == "get" else {"body": {}}
    with pytest.raises(GatewayUnreachable) as heard:
        await getattr(gateway, method)(path, **given)
    assert str(heard.value) == f"The gateway did not answer ({error.__name__}).{advice}"
