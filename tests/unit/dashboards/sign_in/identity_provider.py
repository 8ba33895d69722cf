"""A small identity provider with real signatures, and a gateway that makes keys, both scripted for tests."""

import hashlib
import json
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
from joserfc import jwt
from joserfc.jwk import RSAKey

ISSUER = "https://id.example"
CLIENT, SECRET = "breakeven-ui", "s3cret/with:signs"
NOW = 1_790_000_000


class IdentityProvider:
    """`claims` changes what the next token says, `sign` how it is signed, `described` its metadata. `url` is
    its address."""

    def __init__(self, url: str = ISSUER, *, now: Callable[[], int] = lambda: NOW) -> None:
        self.url, self.now = url, now
        self.key = RSAKey.generate_key(2048, {"kid": "one"})
        self.issuer = url
        self.groups: list[str] = ["finance-team"]
        self.claims: dict[str, Any] = {}
        self.sign: Callable[[dict[str, Any]], str] = self._sign
        self.is_down = False
        self.codes: dict[str, dict[str, str]] = {}
        self.described: dict[str, Any] = {}
        self.user_info: dict[str, Any] = {}

    def answer(self, request: httpx.Request) -> httpx.Response:
        if self.is_down:
            raise httpx.ConnectError("refused")
        match request.url.path:
            case "/.well-known/openid-configuration":
                return httpx.Response(
                    200,
                    json={
                        "issuer": self.issuer,
                        "authorization_endpoint": f"{self.url}/authorize",
                        "token_endpoint": f"{self.url}/token",
                        "jwks_uri": f"{self.url}/keys",
                        "id_token_signing_alg_values_supported": ["none", "HS256", "RS256"],
                        **self.described,
                    },
                )
            case "/keys":
                return httpx.Response(200, json={"keys": [self.key.as_dict(private=False)]})
            case "/token":
                return self._token(request)
            case "/userinfo" if request.headers["authorization"] == "Bearer at":
                return httpx.Response(200, json=self.user_info)
            case _:
                return httpx.Response(404)

    def agree(self, url: str) -> dict[str, str]:
        """A person agrees: the parameters that their browser brings back."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        assert asked["redirect_uri"] == "http://127.0.0.1:8081/ui/oidc/callback"
        self.codes["code-1"] = asked
        return {"state": asked["state"], "code": "code-1"}

    def _token(self, request: httpx.Request) -> httpx.Response:
        form = {name: values[0] for name, values in parse_qs(request.content.decode()).items()}
        if not self._is_client(request, form):
            return httpx.Response(401, json={"error": "invalid_client"})
        asked = self.codes.pop(form["code"], None)
        challenge = urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).decode().rstrip("=")
        if asked is None or asked["code_challenge"] != challenge:
            return httpx.Response(400, json={"error": "invalid_grant"})
        claims = {
            "iss": self.url, "aud": CLIENT, "sub": "42", "email": "ann@corp.example", "email_verified": True,
            "nonce": asked["nonce"], "iat": self.now(), "exp": self.now() + 300, "groups": self.groups, **self.claims,
        }  # fmt: skip
        claims = {name: value for name, value in claims.items() if value is not None}
        return httpx.Response(200, json={"access_token": "at", "token_type": "Bearer", "id_token": self.sign(claims)})

    def _is_client(self, request: httpx.Request, form: dict[str, str]) -> bool:
        if "client_secret_post" in self.described.get("token_endpoint_auth_methods_supported", []):
            return (form.get("client_id"), form.get("client_secret")) == (CLIENT, SECRET)
        given = b64decode(request.headers["authorization"].removeprefix("Basic ")).decode()
        return given == f"{CLIENT}:s3cret%2Fwith%3Asigns"

    def _sign(self, claims: dict[str, Any]) -> str:
        return jwt.encode({"alg": "RS256", "kid": self.key.kid}, claims, self.key)


class Gateway:
    """Creates and revokes keys for the UI's own key, and tells whose a key is."""

    def __init__(self) -> None:
        self.made: list[dict[str, Any]] = []
        self.revoked: list[str] = []
        self.is_down = False

    def answer(self, request: httpx.Request) -> httpx.Response:
        if self.is_down:
            raise httpx.ConnectError("refused")
        key = request.headers["authorization"].removeprefix("Bearer ")
        if request.method == "GET":
            return httpx.Response(200, json={"name": key, "role": "x", "permissions": ["reports.read"]})
        assert key == "bk-ui", "only the UI's own key may do this"
        if request.url.path.endswith("/revoke"):
            self.revoked.append(request.url.path.split("/")[-2])
            return httpx.Response(200, json={})
        self.made.append(json.loads(request.content))
        return httpx.Response(201, json={"id": "key_1", "key": "bk-person"})
