"""Signing in through a company's identity provider: who gets in and with which role, and everything that must not."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

from dashboards.gateway_client import GatewayClient
from dashboards.path_prefix import Prefixed
from dashboards.security import COOKIE
from dashboards.sign_in.company import CONFIGURATION, OWN_KEY, build_oidc, read_oidc
from dashboards.sign_in.forms import build_sign_in
from dashboards.sign_in.oidc import OidcProvider, OidcSettings
from dashboards.sign_in.sessions import Sessions, SignInLimit
from tests.unit.dashboards.sign_in.identity_provider import CLIENT, ISSUER, NOW, SECRET, Gateway, IdentityProvider

SETTINGS = OidcSettings(
    issuer=ISSUER,
    client_id=CLIENT,
    client_secret=SECRET,
    public_url="http://127.0.0.1:8081",
    roles={"finance-team": "finance", "platform": "owner", "everyone": "viewer"},
)


class Rig:
    """The sign-in routes between a scripted identity provider and a scripted gateway."""

    def __init__(self, settings: OidcSettings = SETTINGS) -> None:
        self.provider, self.gateway = IdentityProvider(), Gateway()
        self.now = float(NOW)
        self.sessions = Sessions(lambda: self.now)
        http = httpx.AsyncClient(base_url="http://gateway", transport=httpx.MockTransport(self.gateway.answer))
        oidc = OidcProvider(settings, transport=httpx.MockTransport(self.provider.answer), now=lambda: self.now)
        self.app = FastAPI()
        self.app.include_router(build_oidc(oidc, GatewayClient(http, "bk-ui"), self.sessions, now=lambda: self.now))
        limit = SignInLimit(lambda: self.now)
        self.app.include_router(build_sign_in(http, self.sessions, limit, company="id.example", own_key="bk-ui"))
        self.browser = self.new_browser()

    def new_browser(self) -> TestClient:
        return TestClient(self.app, base_url="http://127.0.0.1:8081", follow_redirects=False)

    def start(self) -> dict[str, str]:
        return self.provider.agree(self.browser.get("/ui/oidc/start").headers["location"])

    def come_back(self, parameters: dict[str, str]) -> httpx.Response:
        return self.browser.get("/ui/oidc/callback", params=parameters)  # pyright: ignore[reportReturnType]

    def cookie(self) -> str | None:
        return self.browser.cookies.get(COOKIE)


def test_a_person_gets_a_session_and_a_key_of_their_own_for_a_day() -> None:
    rig = Rig()
    assert 'href="oidc/start"' in rig.browser.get("/ui/sign-in").text
    assert rig.come_back(rig.start()).headers["location"] == "/ui/"
    session = rig.sessions.find(rig.cookie())
    assert session is not None
    assert (session.name, session.role, session.key) == ("ann@corp.example", "finance", "bk-person")
    [made] = rig.gateway.made
    assert (made["name"], made["role"], made["tags"]) == ("ann@corp.example", "finance", ["web-ui"])
    assert made["expires_at_us"] == (NOW + 24 * 3600) * 1_000_000


def test_under_a_path_a_person_comes_back_to_it_and_their_cookies_go_nowhere_else() -> None:
    rig = Rig()
    browser = TestClient(Prefixed(rig.app, "/breakeven"), base_url="http://127.0.0.1:8081", follow_redirects=False)
    answer = rig.provider.agree(browser.get("/breakeven/ui/oidc/start").headers["location"])
    assert [one.path for one in browser.cookies.jar] == ["/breakeven/ui/oidc"]
    back = browser.get("/breakeven/ui/oidc/callback", params=answer)
    assert back.headers["location"] == "/breakeven/ui/"
    assert {one.name: one.path for one in browser.cookies.jar} == {COOKIE: "/breakeven/ui"}


def test_who_was_on_the_way_to_a_page_comes_to_it() -> None:
    rig = Rig()
    page = rig.browser.get("/ui/sign-in", params={"next": "/ui/rules?view=form"}).text
    assert 'href="oidc/start?next=%2Fui%2Frules%3Fview%3Dform"' in page
    for wanted, shown in (("/ui/rules?view=form", "/ui/rules?view=form"), ("https://evil.example/", "/ui/")):
        sent = rig.browser.get("/ui/oidc/start", params={"next": wanted}).headers["location"]
        assert rig.come_back(rig.provider.agree(sent)).headers["location"] == shown


def test_signing_out_ends_the_key() -> None:
    rig = Rig()
    rig.come_back(rig.start())
    session = rig.sessions.find(rig.cookie())
    assert session is not None
    rig.browser.post("/ui/sign-out", data={"csrf": session.csrf})
    assert rig.gateway.revoked == ["key_1"]
    assert rig.sessions.find(rig.cookie()) is None


@pytest.mark.parametrize(
    ("groups", "role"), [(["everyone", "platform"], "owner"), (["everyone", "else"], "viewer"), ("platform", "owner")]
)
def test_the_highest_role_counts(groups: list[str], role: str) -> None:
    rig = Rig()
    rig.provider.groups = groups
    rig.come_back(rig.start())
    assert rig.gateway.made[0]["role"] == role


@pytest.mark.parametrize(
    ("groups", "role", "team"),
    [
        (["search-leads"], "lead", "search"),
        (["legal-leads", "search-leads"], "lead", "search"),
        (["search-leads", "finance-team"], "finance", None),
        (["strangers"], "viewer", None),
    ],
)
def test_who_leads_a_team_reads_of_that_team_unless_a_role_says_more(
    groups: list[str], role: str, team: str | None
) -> None:
    leads = {"search-leads": "search", "legal-leads": "legal"}
    rig = Rig(replace(SETTINGS, leads=leads, default_role="viewer"))
    rig.provider.groups = groups
    rig.come_back(rig.start())
    [made] = rig.gateway.made
    assert (made["role"], made["team"]) == (role, team)


def test_scopes_that_the_provider_gives_groups_for_are_asked_for() -> None:
    for extra, asked in ((), "openid profile email"), (("groups",), "openid profile email groups"):
        sent = Rig(replace(SETTINGS, extra_scopes=extra)).browser.get("/ui/oidc/start").headers["location"]
        assert parse_qs(urlsplit(sent).query)["scope"] == [asked]


@pytest.mark.parametrize(
    ("name", "claims"),
    [
        ("realm_access.roles", {"realm_access": {"roles": ["offline_access", "platform"]}}),
        ("https://corp.example/roles", {"https://corp.example/roles": ["platform"]}),
        ("roles", {"roles": {"platform": {"1234": "corp.example"}}}),
    ],
)
def test_the_claim_may_lie_within_another_and_be_a_list_or_an_object(name: str, claims: dict[str, Any]) -> None:
    rig = Rig(replace(SETTINGS, roles_claim=name))
    rig.provider.claims = claims
    rig.come_back(rig.start())
    assert rig.gateway.made[0]["role"] == "owner"


def test_groups_that_are_not_in_the_token_are_asked_for_and_must_be_the_same_persons() -> None:
    rig = Rig()
    rig.provider.described = {"userinfo_endpoint": f"{ISSUER}/userinfo"}
    rig.provider.claims = {"groups": None}
    rig.provider.user_info = {"sub": "42", "groups": ["platform"], "email": "other@corp.example"}
    rig.come_back(rig.start())
    [made] = rig.gateway.made
    assert (made["role"], made["name"]) == ("owner", "ann@corp.example"), "what the token says counts first"
    rig.provider.user_info["sub"] = "43"
    assert rig.come_back(rig.start()).status_code == 403
    assert len(rig.gateway.made) == 1


def test_who_says_nothing_of_groups_is_no_stranger_and_the_refusal_says_what_to_do() -> None:
    rig = Rig()
    rig.provider.claims = {"groups": None}
    refused = rig.come_back(rig.start())
    assert (refused.status_code, rig.gateway.made) == (403, [])
    assert "has no claim &#x27;groups&#x27;" in refused.text
    assert "extra_scopes" in refused.text


def test_a_provider_that_takes_the_secret_in_the_form_alone_gets_it_there() -> None:
    rig = Rig()
    rig.provider.described = {"token_endpoint_auth_methods_supported": ["client_secret_post", "private_key_jwt"]}
    assert rig.come_back(rig.start()).status_code == 303


def test_without_a_role_nobody_gets_in_and_a_default_role_is_one() -> None:
    rig = Rig()
    rig.provider.groups = ["strangers"]
    refused = rig.come_back(rig.start())
    assert (refused.status_code, rig.gateway.made, rig.cookie()) == (403, [], None)
    assert "has no role here" in refused.text
    open_to_all = Rig(OidcSettings(ISSUER, CLIENT, SECRET, SETTINGS.public_url, default_role="viewer"))
    open_to_all.come_back(open_to_all.start())
    assert open_to_all.gateway.made[0]["role"] == "viewer"


def other_signature(claims: dict[str, Any]) -> str:
    return jwt.encode({"alg": "RS256", "kid": "one"}, claims, RSAKey.generate_key(2048, {"kid": "one"}))


def clients_secret(claims: dict[str, Any]) -> str:
    return jwt.encode({"alg": "HS256", "kid": "one"}, claims, OctKey.import_key(SECRET))


def no_signature(claims: dict[str, Any]) -> str:
    head, body, _ = other_signature(claims).split(".")
    return ".".join(("eyJhbGciOiJub25lIiwia2lkIjoib25lIn0", body, "")) if head else ""


def nonsense(claims: dict[str, Any]) -> str:
    return "nonsense"


@pytest.mark.parametrize("sign", [other_signature, clients_secret, no_signature, nonsense])
def test_a_token_that_the_provider_did_not_sign_is_refused(sign: Callable[[dict[str, Any]], str]) -> None:
    rig = Rig()
    rig.provider.sign = sign
    assert rig.come_back(rig.start()).status_code == 403
    assert rig.cookie() is None


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://evil.example"},
        {"aud": "another-client"},
        {"nonce": "of another attempt"},
        {"exp": NOW - 3600, "iat": NOW - 7200},
        {"iat": NOW + 7200, "exp": NOW + 9000},
    ],
)
def test_a_token_for_somebody_else_or_another_time_is_refused(claims: dict[str, Any]) -> None:
    rig = Rig()
    rig.provider.claims = claims
    assert rig.come_back(rig.start()).status_code == 403
    assert rig.gateway.made == []


def test_an_answer_counts_once_in_its_own_browser_with_its_own_state() -> None:
    rig = Rig()
    answer = rig.start()
    assert rig.new_browser().get("/ui/oidc/callback", params=answer).status_code == 403
    assert rig.come_back({**answer, "state": "guéssed"}).status_code == 403
    assert rig.come_back(answer).status_code == 403, "the attempt was used up"
    answer = rig.start()
    assert rig.come_back(answer).status_code == 303
    assert rig.come_back(answer).status_code == 403
    answer = rig.start()
    rig.now += 601
    assert rig.come_back(answer).status_code == 403


def test_a_provider_that_changed_its_keys_is_asked_again() -> None:
    rig = Rig()
    rig.come_back(rig.start())
    rig.provider.key = RSAKey.generate_key(2048, {"kid": "two"})
    assert rig.come_back(rig.start()).status_code == 303


def test_refusals_are_for_people_and_inert() -> None:
    rig = Rig()
    rig.start()
    refused = rig.browser.get("/ui/oidc/callback", params={"error": "<script>alert(1)</script>"})
    assert refused.status_code == 403
    assert "<script>" not in refused.text
    rig.gateway.is_down = True
    assert "no session could be created" in rig.come_back(rig.start()).text
    down = Rig()
    down.provider.is_down = True
    assert down.browser.get("/ui/oidc/start").status_code == 502
    liar = Rig()
    liar.provider.issuer = "https://evil.example"
    assert "another issuer" in liar.browser.get("/ui/oidc/start").text


def test_an_unverified_address_is_no_name() -> None:
    rig = Rig()
    rig.provider.claims = {"email": "ceo@corp.example", "email_verified": False, "preferred_username": "eve;<b>"}
    rig.come_back(rig.start())
    assert rig.gateway.made[0]["name"] == "eve--b-"


def configuration(**changed: object) -> str:
    given = {
        "issuer": ISSUER,
        "client_id": CLIENT,
        "client_secret_env": "THE_SECRET",
        "public_url": "https://ui.example",
    }
    return json.dumps({**given, **changed})


def test_configuration_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CONFIGURATION, raising=False)
    assert read_oidc() is None
    monkeypatch.setenv("THE_SECRET", SECRET)
    monkeypatch.setenv(OWN_KEY, "bk-ui")
    monkeypatch.setenv(CONFIGURATION, configuration(roles={"platform": "owner"}))
    found = read_oidc()
    assert found is not None
    assert (found[0].client_secret, found[0].redirect_uri) == (SECRET, "https://ui.example/ui/oidc/callback")
    assert SECRET not in repr(found[0])


@pytest.mark.parametrize(
    "changed",
    [{"issuer": "http://id.example"}, {"roles": {"a": "app"}}, {"roles": ["a"]}, {"client_secret_env": "NOT_SET"}],
)
def test_a_configuration_that_is_not_safe_is_refused(
    monkeypatch: pytest.MonkeyPatch, changed: dict[str, object]
) -> None:
    monkeypatch.setenv("THE_SECRET", SECRET)
    monkeypatch.setenv(OWN_KEY, "bk-ui")
    monkeypatch.setenv(CONFIGURATION, configuration(**changed))
    with pytest.raises(ValueError, match=r"https|role|secret"):
        read_oidc()
    monkeypatch.setenv(CONFIGURATION, '"issuer"')
    with pytest.raises(ValueError, match="must be a JSON object"):
        read_oidc()
