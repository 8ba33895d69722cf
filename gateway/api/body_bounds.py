"""The largest allowed body, by path and by sender. Reads no body, knows no server."""

from collections.abc import Callable
from typing import Final

from starlette.types import Scope

from gateway.access.keys import KeyRing
from gateway.access.roles import PERMISSIONS
from gateway.api.conversations import PREFIX as CONVERSATIONS
from gateway.api.gemini import ENDPOINTS as CONTENTS
from gateway.api.messages import ENDPOINTS as MESSAGES
from gateway.api.shedding import FILES, UNASKED_BYTES, Bound
from gateway.api.token_path import ENDPOINTS, credential_of
from gateway.errors import BodyTooLarge, Forbidden

PROMPTS: Final = ENDPOINTS.keys() | MESSAGES.keys() | CONTENTS.keys() | {"/v1/route", "/v1/messages/batches"}
ADMIN: Final = "/admin/v1/"
SAID: Final = (ADMIN, CONVERSATIONS)


def build_bound(keys: KeyRing, now_us: Callable[[], int], max_bytes: int, max_file_bytes: int) -> Bound:
    """Beyond UNASKED_BYTES a body needs a valid key whose role can use such a body at that path.

    The frameworks behind this read and parse the whole body before the sender is authenticated.
    """

    def bound(scope: Scope, came: int) -> int:
        key = keys.authenticate(credential_of(scope["headers"]), now_us())
        path: str = scope["path"].rstrip("/")
        if path.startswith(ADMIN) and not PERMISSIONS[key.role]:
            raise Forbidden(
                f"The key {key.name!r} has the role {key.role!r}, which may do nothing under {ADMIN}.",
                code="role_not_allowed",
            )
        most = max_bytes if path in PROMPTS or path.startswith(SAID) else UNASKED_BYTES
        setting = "server.max_body_megabytes"
        if path == FILES:
            most, setting = max_file_bytes + UNASKED_BYTES, "batches.max_file_megabytes"  # with the form around it
        if came > most:
            raise too_large(most, setting)
        return most

    return bound


def too_large(most: int, setting: str) -> BodyTooLarge:
    more = "" if most == UNASKED_BYTES else f", or raise {setting} in breakeven.yaml"
    return BodyTooLarge(f"The body is larger than {most:,} bytes. Send less{more}.", code="body_too_large")
