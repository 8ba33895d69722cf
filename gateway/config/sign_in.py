"""The `sign_in` block of breakeven.yaml: ways to sign in to the web UI besides keys."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from gateway.strict import Strict

UiRole = Literal["viewer", "finance", "editor", "owner"]
Scope = Annotated[str, Field(pattern=r"^[\x21\x23-\x5b\x5d-\x7e]+$")]
TeamName = Annotated[str, Field(min_length=1, max_length=64)]
LOOPBACK = ("http://127.0.0.1", "http://localhost", "http://[::1]")


class OidcSignIn(Strict):
    """An OpenID Connect provider. The client secret is read from the environment variable `client_secret_env`.

    `roles` maps values of the claim `roles_claim` to roles, of which the highest counts; `leads` maps them to the team
    led by someone without such a role; `default_role` is for everyone else. `extra_scopes` are requested in addition to
    openid, profile and email.
    """

    issuer: str
    client_id: str = Field(min_length=1)
    client_secret_env: str = Field(min_length=1)
    public_url: str
    roles_claim: str = "groups"
    roles: dict[str, UiRole] = Field(default_factory=dict[str, UiRole])
    leads: dict[str, TeamName] = Field(default_factory=dict[str, TeamName])
    default_role: UiRole | None = None
    extra_scopes: list[Scope] = Field(default_factory=list[Scope])

    @field_validator("issuer", "public_url")
    @classmethod
    def _is_safe(cls, url: str) -> str:
        if not url.startswith(("https://", *LOOPBACK)):
            raise ValueError("must begin with https://; plain http is for this machine alone")
        return url


class SignInSettings(Strict):
    oidc: OidcSignIn | None = None
