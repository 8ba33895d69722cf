"""The end user that a body names: the customer of the app, as the app calls it. Pure."""

from typing import Any, Final, cast

import msgspec

from backends.formats.form_splice import find_fields, is_form, text_fields
from gateway.errors import InvalidRequest
from gateway.request.encodings import unreadable
from gateway.request.media_views import FORMS
from gateway.request.run import Incoming

MOST_CHARACTERS: Final = 256
"""As many as Anthropic takes; OpenAI takes 64."""
NAMES: Final = ("safety_identifier", "user")
NO_NAME: Final = "(none)"


class _Naming(msgspec.Struct):
    safety_identifier: object = None
    user: object = None
    metadata: object = None


_DECODER: Final = msgspec.json.Decoder(_Naming)


def end_user_of(incoming: Incoming) -> str | None:
    """OpenAI's `safety_identifier`, else its `user`, else Anthropic's `metadata.user_id`; None if none is a text that
    is not empty. Raises InvalidRequest if it is too long or not printable, or where these fields hold what the body's
    reader, which passes over them, did not look at: text that is not UTF-8, or a number beyond all bounds."""
    # Of other operations nobody looks at the type that a caller names.
    if incoming.operation in FORMS and is_form(incoming.content_type):
        texts = text_fields(incoming.body, find_fields(incoming.body, incoming.content_type))
        named: dict[str, object] = {name: texts.get(name) for name in NAMES}
    else:
        try:
            body = _DECODER.decode(incoming.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise unreadable(incoming.body, error) from error
        named = {"safety_identifier": body.safety_identifier, "user": body.user}
        if isinstance(body.metadata, dict):
            named["metadata.user_id"] = cast("dict[str, Any]", body.metadata).get("user_id")
    for name, value in named.items():
        if isinstance(value, str) and value:
            return checked_name(name, value)
    return None


def checked_name(name: str, value: str) -> str:
    """Of an end user, given in the field or parameter `name`. Raises InvalidRequest."""
    if len(value) > MOST_CHARACTERS or not value.isprintable() or value == NO_NAME:
        raise InvalidRequest(
            f"{name}: costs are booked for each end user here, so it takes at most {MOST_CHARACTERS} printable "
            f"characters, and not {NO_NAME}, as reports call requests without one.",
            param=name,
        )
    return value
