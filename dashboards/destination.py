"""Which page somebody wanted who has to sign in first, as it is carried through the sign-in. Pure."""

import re
from urllib.parse import urlencode

HOME = "/ui/"
SIGN_IN = "/ui/sign-in"
NO_PAGES = (SIGN_IN, "/ui/sign-out", "/ui/oidc/", "/ui/export/", "/ui/static/", "/ui/_nicegui")
DOTS = re.compile(r"/(?:\.|%2e){1,2}(?:/|$)", re.IGNORECASE)
"""What browsers take out of a path, with the name before it."""
LONGEST = 2000
"""More than any address of ours; what is longer goes to the first page."""


def sign_in_address(wanted: str, *, path: str = SIGN_IN) -> str:
    """Where to sign in, so that `wanted` (a path with its query) is shown afterwards."""
    destination = destination_of(wanted)
    return path if destination == HOME else f"{path}?{urlencode({'next': destination})}"


def destination_of(wanted: str) -> str:
    """`wanted` where it is a page of ours, whoever wrote it into the address; else the first page."""
    is_ours = wanted.startswith(HOME) and len(wanted) <= LONGEST and wanted.isprintable() and "\\" not in wanted
    leads_out = DOTS.search(wanted.partition("?")[0])  # of /ui: others may be served beside it
    return wanted if is_ours and not leads_out and not wanted.startswith(NO_PAGES) else HOME
