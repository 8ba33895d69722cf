"""Each column of LiteLLM's tables is known for what it is; where litellm is installed, its schema is looked into."""

import importlib.util
import re
from pathlib import Path
from typing import Any, Final

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


def of_theirs(file: str) -> str:
    """Read, and not imported: that takes seconds."""
    found = importlib.util.find_spec("litellm")
    if found is None or found.origin is None:
        pytest.skip(WITHOUT_THEIRS)
    return (Path(found.origin).parent / "proxy" / file).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def theirs() -> dict[str, set[str]]:
    """Table -> its columns."""
    models = re.findall(r"^model (\w+) \{(.*?)^\}", of_theirs("schema.prisma"), re.MULTILINE | re.DOTALL)
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
    [function] = re.findall(
        r"^def hash_token\(.*?^    return [^\n]*\n", of_theirs("_types.py"), re.MULTILINE | re.DOTALL
    )
    known: dict[str, Any] = {"Final": Final}
    exec(function, known)
    assert hash_token("sk-1234 ü") == known["hash_token"]("sk-1234 ü")
