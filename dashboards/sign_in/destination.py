"""Carries the requested page through the sign-in. Pure."""

import re
from urllib.parse import urlencode

HOME = "/ui/"
SIGN_IN = "/ui/sign-in"
NO_PAGES = (SIGN_IN, "/ui/sign-out", "/ui/oidc/", "/ui/export/", "/ui/static/", "/ui/_nicegui")
DOTS = re.compile(r"/(?:\.|%2e){1,2}(?:/|$)", re.IGNORECASE)
"""Dot segments, which browsers resolve by removing the name before them."""
LONGEST = 2000
"""Longer than any address of ours; anything longer leads to the first page."""


def sign_in_address(wanted: str, *, path: str = SIGN_IN) -> str:
    """The address of the sign-in that shows `wanted` (a path with its query) afterwards."""
    destination = destination_of(wanted)
    return path if destination == HOME else f"{path}?{urlencode({'next': destination})}"


def destination_of(wanted: str) -> str:
    """`wanted` if it is a page of ours (the address is untrusted), else the first page."""
    is_ours = wanted.startswith(HOME) and len(wanted) <= LONGEST and wanted.isprintable() and "\\" not in wanted
    leads_out = DOTS.search(wanted.partition("?")[0])  # of /ui: other applications may be beside it
    return wanted if is_ours and not leads_out and not wanted.startswith(NO_PAGES) else HOME
