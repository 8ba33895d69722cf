"""Posts a notice to a webhook. Its address is a secret: it is in no error, log or answer of ours."""

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
    """As providers are called: certificates by the system's authorities or SSL_CERT_FILE, no proxy of the environment,
    no redirect followed."""

    url: str = field(repr=False)
    sleep: Sleep = asyncio.sleep

    async def post(self, document: Document) -> None:
        """Three tries. Raises NoticeNotTaken, with what the last of them met."""
        problem = ""
        for wait_seconds in (0.0, *WAITS_SECONDS):
            if wait_seconds:
                await self.sleep(wait_seconds)
            problem = await self._try(document)
            if not problem:
                return
        raise NoticeNotTaken(f"the webhook of `notices` took nothing: {problem}")

    async def _try(self, document: Document) -> str:
        """What went wrong, in words that name no address; empty: nothing."""
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
