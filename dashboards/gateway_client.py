"""The gateway's HTTP API as this process sees it, with one signed-in key. The only way to any figure or change."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, cast

import httpx

ANSWER_SECONDS = 30.0
QUESTIONS = ("/validate", "/replay", "/route")
"""Ends of paths that are called with POST and change nothing."""
HALF_CHARACTER = "What was typed contains half of a character, which is not valid Unicode. Delete it and type it again."
ANOTHER_SERVICE = "Something other than the gateway answers at its address: it sent no JSON."
Json = Any


class GatewayRefused(Exception):
    """The gateway refused; `message` is its own sentence, and `field` the field that it is about, if it names one."""

    def __init__(self, status: int, message: str, code: str | None, field: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.field = field


class GatewayUnreachable(Exception):
    """No answer came: the gateway could not be reached (`is_away`), or took too long."""

    def __init__(self, message: str, *, is_away: bool) -> None:
        super().__init__(message)
        self.is_away = is_away


class GatewayClient:
    """The API as one key sees it. Cheap to create: the connection pool is shared."""

    def __init__(self, http: httpx.AsyncClient, key: str) -> None:
        self._http = http
        self._headers = {"authorization": f"Bearer {key}"}

    @property
    def url(self) -> str:
        """The address that this process uses; people may know the gateway by another."""
        return str(self._http.base_url).rstrip("/")

    def with_key(self, key: str) -> "GatewayClient":
        """The same gateway as another key sees it."""
        return GatewayClient(self._http, key)

    async def get(self, path: str, **query: object) -> Json:
        """Raises GatewayRefused or GatewayUnreachable. None is not sent, a list becomes one parameter per item."""
        return await self._ask("GET", path, query=query)

    async def post(self, path: str, body: Mapping[str, object] | None = None, **query: object) -> Json:
        return await self._ask("POST", path, query=query, body=body or {})

    async def explain(self, body: Mapping[str, object], *, tags: str) -> Json:
        """What `/v1/route` says about a chat completion with these comma-separated tags."""
        return await self._ask("POST", "/v1/route", body=body, headers={"x-breakeven-tags": tags} if tags else {})

    async def put(self, path: str, body: Mapping[str, object]) -> Json:
        return await self._ask("PUT", path, body=body)

    async def patch(self, path: str, body: Mapping[str, object], **query: object) -> Json:
        return await self._ask("PATCH", path, query=query, body=body)

    async def delete(self, path: str, **query: object) -> Json:
        return await self._ask("DELETE", path, query=query)

    async def download(self, path: str, **query: object) -> tuple[bytes, str]:
        """A file's content and its media type."""
        answer = await self._request("GET", path, query=query)
        return answer.content, answer.headers["content-type"]

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        body: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Json:
        answer = await self._request(method, path, query=query, body=body, headers=headers)
        try:
            return answer.json()
        except ValueError as error:
            raise GatewayRefused(HTTPStatus.BAD_GATEWAY, ANOTHER_SERVICE, None) from error

    async def _request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        body: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        try:
            answer = await self._http.request(
                method, path, params=_given(query or {}), json=body, headers={**self._headers, **(headers or {})}
            )
        except UnicodeEncodeError as error:
            raise GatewayRefused(HTTPStatus.BAD_REQUEST, HALF_CHARACTER, None) from error
        except httpx.HTTPError as error:
            is_change = method != "GET" and not path.endswith(QUESTIONS)
            is_away = not isinstance(error, httpx.TimeoutException) or isinstance(error, httpx.ConnectTimeout)
            raise GatewayUnreachable(_unanswered(error, is_change=is_change), is_away=is_away) from error
        if answer.is_success:
            return answer
        raise _refusal(answer)


def _given(query: Mapping[str, object]) -> httpx.QueryParams:
    found: list[tuple[str, str | int | float | bool | None]] = []
    for name, value in query.items():
        several = cast("list[object]", value) if isinstance(value, list) else [value]
        found += [(name, str(one)) for one in several if one is not None]
    return httpx.QueryParams(found)


def open_gateway(url: str, answer_seconds: float = ANSWER_SECONDS) -> httpx.AsyncClient:
    """The shared pool. Follows no redirect: the key goes to this origin only."""
    return httpx.AsyncClient(base_url=url, timeout=answer_seconds, follow_redirects=False, trust_env=False)


def _unanswered(error: httpx.HTTPError, *, is_change: bool) -> str:
    """For a change, it also says whether trying again is safe."""
    said = f"The gateway did not answer ({type(error).__name__})."
    if not is_change:
        return said
    if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)):
        return f"{said} Nothing was sent to it: try again once it runs."
    return f"{said} It may have done it all the same: look before you try again."


def _refusal(answer: httpx.Response) -> GatewayRefused:
    try:
        error = answer.json()["error"]
        return GatewayRefused(answer.status_code, str(error["message"]), error.get("code"), error.get("param"))
    except (ValueError, KeyError, TypeError):
        return GatewayRefused(
            answer.status_code, f"The gateway answered {answer.status_code} without saying why.", None
        )
