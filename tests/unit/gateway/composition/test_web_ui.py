"""The child that serves the web UI gets what company sign-in needs, and keeps its key over restarts."""

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from gateway.access.keys import KeyRecord, hash_key
from gateway.composition.web_ui import allow_company_sign_in, ui_supervisor
from gateway.config.home import Home
from gateway.config.sign_in import OidcSignIn
from tests.unit.gateway.api.memory_stores import MemoryKeys

OIDC = OidcSignIn(
    issuer="https://id.example", client_id="x", client_secret_env="SECRET", public_url="https://ui.example"
)


class Keys(MemoryKeys):
    """Keys with this home's pepper."""

    def __init__(self, home: Home) -> None:
        super().__init__()
        self._home = home

    async def find_by_hash(self, key_hash: bytes) -> KeyRecord | None:
        records = {hash_key(self._home.pepper(), self.secrets[one.record.id]): one.record for one in self.listed}
        return records.get(key_hash)


async def key_of_a_start(home: Home, keys: Keys) -> str:
    ui = ui_supervisor(home, gateway_url="http://127.0.0.1:1", port=2, withheld=frozenset({"SECRET"}))
    assert ui is not None
    await allow_company_sign_in(ui, OIDC, home, keys)
    assert ui.supervisor.command[-1] == "--behind-tls"
    assert json.loads(ui.supervisor.environment["BREAKEVEN_UI_OIDC"])["issuer"] == "https://id.example"
    assert ui.supervisor.environment["SECRET"] == "of the client"
    return ui.supervisor.environment["BREAKEVEN_UI_KEY"]


async def test_the_key_of_the_ui_is_kept_until_somebody_revokes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "of the client")
    home = Home(tmp_path)
    keys = Keys(home)
    first = await key_of_a_start(home, keys)
    assert (tmp_path / "ui.key").stat().st_mode & 0o077 == 0
    assert await key_of_a_start(home, keys) == first
    await keys.revoke(keys.listed[0].record.id, author="ann")
    assert await key_of_a_start(home, keys) != first
    assert len(keys.listed) == 2


@pytest.mark.parametrize(("prefix", "told"), [("", []), ("/breakeven", ["--path-prefix", "/breakeven"])])
def test_the_web_ui_is_told_under_which_path_it_is(tmp_path: Path, prefix: str, told: list[str]) -> None:
    home = Home(tmp_path)
    ui = ui_supervisor(home, gateway_url="http://127.0.0.1:1", port=2, path_prefix=prefix, withheld=frozenset())
    assert ui is not None
    command = ui.supervisor.command
    assert command[command.index("--exit-with-parent") + 2 :] == told
    assert ui.url == f"http://127.0.0.1:2{prefix}/ui", "its cookies go nowhere else, at its own machine too"


@pytest.mark.parametrize(
    "changed",
    [{"issuer": "http://id.example"}, {"roles": {"a": "app"}}, {"rolls": {}}, {"extra_scopes": ["groups roles"]}],
)
def test_settings_that_are_not_safe_are_refused(changed: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        OidcSignIn.model_validate({**OIDC.model_dump(), **changed})
