"""Posts a notice to a webhook. Its address is a secret and appears in no error, log or response."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import httpx

from gateway.errors import NoticeNotTaken
from gateway.notices.notice import Document

WAITS_SECONDS = (1.0, 4.0)
"""Before the second and the third try."""
TIMEOUT_SECONDS = 10.0
Sleep = Callable[[float], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Webhook:
    """Connects as to providers: certificates by the system's authorities or SSL_CERT_FILE, no proxy from the
    environment, no redirects."""

    url: str = field(repr=False)
    sleep: Sleep = asyncio.sleep

    async def post(self, document: Document) -> None:
        """Tries three times. Raises NoticeNotTaken with the last problem."""
        problem = ""
        for wait_seconds in (0.0, *WAITS_SECONDS):
            if wait_seconds:
                await self.sleep(wait_seconds)
            problem = await self._try(document)
            if not problem:
                return
        raise NoticeNotTaken(f"the webhook of `notices` took nothing: {problem}")

    async def _try(self, document: Document) -> str:
        """The problem, in words that do not contain the address; empty on success."""
        try:
            context = await asyncio.to_thread(ssl.create_default_context)
            async with (
                asyncio.timeout(TIMEOUT_SECONDS),
                httpx.AsyncClient(verify=context, trust_env=False, timeout=TIMEOUT_SECONDS) as client,
                client.stream("POST", self.url, json=document) as answer,
            ):
                return "" if answer.is_success else f"it answered {answer.status_code}; see that its address is right"
        except TimeoutError:
            return f"it did not answer within {TIMEOUT_SECONDS:.0f} s"
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            return f"it cannot be reached ({type(error).__name__}); see that its address is right and may be called"
