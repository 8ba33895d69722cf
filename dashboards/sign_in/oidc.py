"""OpenID Connect: identifies people through a company's identity provider. Knows no sessions and no gateway.

The authorization code flow with PKCE, state and nonce. The accepted signature algorithms of identity tokens are fixed
here and not read from the provider, so that they cannot be downgraded.
"""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx
from authlib.common.errors import AuthlibBaseError
from authlib.oauth2.rfc7636 import create_s256_code_challenge
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet
from joserfc.jws import JWSRegistry

from dashboards.sign_in.sessions import is_same_secret

ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"]
SCOPES = ("openid", "profile", "email")
TIMEOUT_SECONDS = 30.0
LEEWAY_SECONDS = 60
RANKS = ("viewer", "finance", "editor", "owner")


class SignInFailed(Exception):
    """Nobody is signed in; the message says why, to the person who tried."""


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """`roles` maps values of the claim `roles_claim` to roles, `leads` maps them to the team that the person leads;
    `default_role` is for people with neither. `extra_scopes` are requested in addition to SCOPES."""

    issuer: str
    client_id: str
    client_secret: str = field(repr=False)
    public_url: str
    roles_claim: str = "groups"
    roles: Mapping[str, str] = field(default_factory=dict[str, str])
    leads: Mapping[str, str] = field(default_factory=dict[str, str])
    default_role: str | None = None
    extra_scopes: Sequence[str] = ()

    @property
    def redirect_uri(self) -> str:
        return f"{self.public_url.rstrip('/')}/ui/oidc/callback"


@dataclass(frozen=True, slots=True)
class Attempt:
    """A sign-in in progress, in one browser."""

    state: str
    nonce: str = field(repr=False)
    verifier: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Person:
    """Who signed in, with the highest role that the claims give; `team` is a lead's."""

    name: str
    role: str
    team: str | None = None


class OidcProvider:
    """One identity provider. `transport` replaces the network in tests."""

    def __init__(
        self,
        settings: OidcSettings,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self._transport = transport
        self._now = now
        self._metadata: Mapping[str, Any] | None = None
        self._keys: KeySet | None = None

    async def begin(self) -> tuple[str, Attempt]:
        """The address to send the browser to, and the attempt to keep. Raises SignInFailed."""
        attempt = Attempt(secrets.token_urlsafe(24), secrets.token_urlsafe(24), secrets.token_urlsafe(48))
        asked = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": self.settings.redirect_uri,
            "scope": " ".join((*SCOPES, *self.settings.extra_scopes)),
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": create_s256_code_challenge(attempt.verifier),
            "code_challenge_method": "S256",
        }
        endpoint = (await self._discover())["authorization_endpoint"]
        return str(httpx.URL(endpoint).copy_merge_params(asked)), attempt

    async def finish(self, attempt: Attempt, *, state: str, code: str) -> Person:
        """The person who came back from the provider. Raises SignInFailed."""
        if not is_same_secret(attempt.state, state):
            raise SignInFailed("This sign-in was begun in another window. Please try again.")
        try:
            token = await self._exchange(attempt, code)
            access_token = str(token.get("access_token", ""))
            claims = await self._verified(str(token["id_token"]), attempt, access_token)
            claims = await self._with_user_info(claims, access_token)
        except (AuthlibBaseError, JoseError, httpx.HTTPError, KeyError, ValueError) as error:
            raise SignInFailed(
                f"The identity provider's answer could not be verified ({type(error).__name__}). Please try again."
            ) from error
        return self._person(claims)

    async def _exchange(self, attempt: Attempt, code: str) -> Mapping[str, Any]:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.settings.redirect_uri,
            "code_verifier": attempt.verifier,
        }
        found, own = await self._discover(), self.settings
        auth: httpx.Auth = httpx.BasicAuth(quote(own.client_id, safe=""), quote(own.client_secret, safe=""))
        if "client_secret_basic" not in found.get("token_endpoint_auth_methods_supported", ["client_secret_basic"]):
            auth, form = httpx.Auth(), {**form, "client_id": own.client_id, "client_secret": own.client_secret}
        async with self._http() as http:
            answer = await http.post(found["token_endpoint"], data=form, auth=auth)
        answer.raise_for_status()
        return answer.json()

    async def _with_user_info(self, claims: Mapping[str, Any], access_token: str) -> Mapping[str, Any]:
        """Adds the userinfo endpoint's claims: some providers list groups only there. The token's own win."""
        own, url = self.settings, (await self._discover()).get("userinfo_endpoint")
        if url is None or not (own.roles or own.leads) or claim(claims, own.roles_claim) is not None:
            return claims
        async with self._http() as http:
            answer = await http.get(url, headers={"authorization": f"Bearer {access_token}"})
        answer.raise_for_status()
        found: Mapping[str, Any] = answer.json()
        if found["sub"] != claims["sub"]:  # OpenID Connect Core, 5.3.2
            raise ValueError("the userinfo is somebody else's")
        return {**found, **claims}

    async def _verified(self, id_token: str, attempt: Attempt, access_token: str) -> Mapping[str, Any]:
        """The claims of an identity token, once its signature, issuer, audience, nonce and times are checked."""
        registry = JWSRegistry(algorithms=ALGORITHMS, strict_check_header=False)
        try:
            decoded = jwt.decode(id_token, await self._key_set(), registry=registry)
        except InvalidKeyIdError:  # the provider has rotated its keys
            self._keys = None
            decoded = jwt.decode(id_token, await self._key_set(), registry=registry)
        claims = CodeIDToken(
            decoded.claims,
            decoded.header,
            {
                "iss": {"essential": True, "value": self.settings.issuer},
                "aud": {"essential": True, "value": self.settings.client_id},
                "nonce": {"essential": True, "value": attempt.nonce},
            },
            {"client_id": self.settings.client_id, "nonce": attempt.nonce, "access_token": access_token},
        )
        claims.validate(now=int(self._now()), leeway=LEEWAY_SECONDS)
        return dict(claims)

    def _person(self, claims: Mapping[str, Any]) -> Person:
        """Somebody who leads several teams gets the one that comes first in the configuration."""
        name = _name(claims)
        given = claim(claims, self.settings.roles_claim)
        values = [str(one) for one in given] if isinstance(given, list | dict) else [str(given)] * (given is not None)
        roles = [self.settings.roles[value] for value in values if value in self.settings.roles]
        if roles:
            return Person(name, max(roles, key=RANKS.index))
        if teams := [team for value, team in self.settings.leads.items() if value in values]:
            return Person(name, "lead", teams[0])
        if self.settings.default_role is not None:
            return Person(name, self.settings.default_role)
        if given is None and (self.settings.roles or self.settings.leads):
            raise SignInFailed(
                f"{name} is known to the identity provider, but its answer has no claim {self.settings.roles_claim!r}. "
                "Have it add this claim, or list the scope that provides it under extra_scopes in breakeven.yaml."
            )
        raise SignInFailed(
            f"{name} is known to the identity provider, but has no role here. "
            f"An owner can give one of your {self.settings.roles_claim} a role in breakeven.yaml."
        )

    async def _discover(self) -> Mapping[str, Any]:
        """The provider's metadata, cached once read. Its issuer must be the configured one."""
        if self._metadata is None:
            url = f"{self.settings.issuer.rstrip('/')}/.well-known/openid-configuration"
            found = await self._get(url)
            if found.get("issuer") != self.settings.issuer:
                raise SignInFailed(f"{url} names another issuer: {str(found.get('issuer'))[:100]}.")
            self._metadata = found
        return self._metadata

    async def _key_set(self) -> KeySet:
        if self._keys is None:
            self._keys = KeySet.import_key_set(await self._get((await self._discover())["jwks_uri"]))  # pyright: ignore[reportArgumentType]
        return self._keys

    async def _get(self, url: str) -> dict[str, Any]:
        try:
            async with self._http() as http:
                answer = await http.get(url)
            answer.raise_for_status()
            found: dict[str, Any] = answer.json()
        except (httpx.HTTPError, ValueError) as error:
            raise SignInFailed("The identity provider does not answer. Sign in with a key, or try later.") from error
        return found

    def _http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=self._transport, timeout=TIMEOUT_SECONDS)


def claim(claims: Mapping[str, Any], name: str) -> Any:
    """The claim of this name; if there is none, dots in it lead into nested objects: `realm_access.roles`."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _name(claims: Mapping[str, Any]) -> str:
    """The email address unless it is unverified, else the preferred username, else the subject identifier."""
    email = claims.get("email") if claims.get("email_verified", True) else None
    found = str(email or claims.get("preferred_username") or claims["sub"])
    return "".join(sign if sign.isalnum() or sign in " .:/@_-" else "-" for sign in found)[:64]
