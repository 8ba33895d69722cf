"""Which page is shown after signing in, whoever wrote it into the address."""

from urllib.parse import parse_qs, urlsplit

import pytest

from dashboards.sign_in.destination import HOME, SIGN_IN, destination_of, sign_in_address


@pytest.mark.parametrize(
    "wanted", ["/ui/rules", "/ui/explorer?by=team&team=a%26b&since=2026-11-01", "/ui/keys?find=é", "/ui/keys?find=/../"]
)
def test_a_page_of_ours_survives_the_sign_in(wanted: str) -> None:
    address = urlsplit(sign_in_address(wanted))
    assert address.path == SIGN_IN
    assert destination_of(parse_qs(address.query)["next"][0]) == wanted


@pytest.mark.parametrize(
    "wanted",
    [
        "",
        "/",
        "/ui",
        "//evil.example/ui/",
        "https://evil.example/ui/",
        "/ui/\\evil.example",
        "/ui/rules\r\nset-cookie: a=b",
        "/ui/sign-in?next=/ui/rules",
        "/ui/oidc/start",
        "/ui/" + "x" * 2000,
        "/ui/../beside/sign-out",
        "/ui/rules/%2E./..",
        "/ui/.?next=x",
        "javascript:alert(1)",
    ],
)
def test_anything_else_is_the_first_page(wanted: str) -> None:
    assert destination_of(wanted) == HOME
    assert sign_in_address(wanted) == SIGN_IN
