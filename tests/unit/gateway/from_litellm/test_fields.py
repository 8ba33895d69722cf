"""Each column of LiteLLM's tables is known for what it is; where litellm is installed, its schema is looked into."""

import importlib.util
import re
from pathlib import Path

import pytest

from gateway.from_litellm.fields import FACTS, KEYS, PROJECTS, TABLES, TAKEN, TEAMS, TOLD
from tests.litellm_database import TABLES as OURS
from tests.litellm_database import hash_token

SCALARS = {"String", "Int", "BigInt", "Float", "Boolean", "DateTime", "Json"}
WITHOUT_A_WORD = {
    KEYS: {"config", "permissions", "allowed_cache_controls"},
    TEAMS: {"team_member_permissions", "default_team_member_models", "allow_team_guardrail_config"},
    PROJECTS: set[str](),
}
"""Of which no more can be said than that they are nothing here."""
WITHOUT_THEIRS = "compares with LiteLLM's own schema and hash; `pip install 'breakeven[litellm]'` brings them"


@pytest.fixture(scope="module")
def theirs() -> dict[str, set[str]]:
    """Table -> its columns."""
    found = importlib.util.find_spec("litellm")
    if found is None or found.origin is None:
        pytest.skip(WITHOUT_THEIRS)
    text = (Path(found.origin).parent / "proxy" / "schema.prisma").read_text(encoding="utf-8")
    models = re.findall(r"^model (\w+) \{(.*?)^\}", text, re.MULTILINE | re.DOTALL)
    return {
        name: {one for one, kind in re.findall(r"^\s*(\w+)\s+(\w+)", body, re.MULTILINE) if kind in SCALARS}
        for name, body in models
    }


@pytest.mark.parametrize("table", [KEYS, TEAMS, PROJECTS])
def test_no_column_of_theirs_is_unknown(table: str, theirs: dict[str, set[str]]) -> None:
    assert theirs[table] - TAKEN[table] - FACTS[table] - TOLD.keys() == WITHOUT_A_WORD[table]
    assert TAKEN[table] | FACTS[table] <= theirs[table]


def test_their_tables_are_called_so_and_ours_for_tests_have_their_columns(theirs: dict[str, set[str]]) -> None:
    assert set(TABLES) <= theirs.keys()
    for name, body in re.findall(r'CREATE TABLE "(\w+)" \((.*?)\n\);', OURS, re.DOTALL):
        assert set(re.findall(r'"(\w+)"', body)) <= theirs[name]


def test_keys_are_hashed_as_theirs() -> None:
    ours = pytest.importorskip("litellm.proxy._types", reason=WITHOUT_THEIRS)
    assert hash_token("sk-1234 ü") == ours.hash_token("sk-1234 ü")
