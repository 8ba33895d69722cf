"""Whether a body has what makes tokens cost more than plain ones. It is searched for names at any depth, unread."""

from functools import cached_property
from typing import Final

from backends.formats.json_splice import ESCAPE

_CACHE: Final = (b"cache_control", b'"ttl"')
_MEDIA: Final = (b"image", b"audio")


class Marks:
    """Of one body, which is searched when they are first asked for: a stream asks again for each of its increments."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    @cached_property
    def may_write_cache(self) -> bool:
        return self._may_have(_CACHE)

    @cached_property
    def may_have_media(self) -> bool:
        return self._may_have(_MEDIA)

    def _may_have(self, names: tuple[bytes, ...]) -> bool:
        """A JSON escape may spell any of them."""
        # `find` is faster: in Python 3.11, `in` first tries the name as a number, raising and clearing an error inside.
        return any(self._body.find(name) >= 0 for name in (ESCAPE, *names))
