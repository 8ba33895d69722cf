"""Selecting keys."""

from typing import Any

import pytest

from gateway.access.keys import KeyRecord
from gateway.api.admin.key_views import KeysWanted


def make_record(name: str, role: Any = "app", team: str | None = None, tags: tuple[str, ...] = ()) -> KeyRecord:
    return KeyRecord(f"key_{name}", name, role, team, None, tags, None, None, None)


KEYS = [make_record("search", team="Red", tags=("eu",)), make_record("chat", team="red"), make_record("ann", "owner")]


@pytest.mark.parametrize(
    ("find", "names"),
    [
        ("", ["search", "chat", "ann"]),
        ("  ", ["search", "chat", "ann"]),
        ("RED", ["search", "chat"]),
        ("red eu", ["search"]),
        ("owner", ["ann"]),
        ("key_chat", ["chat"]),
        ("redeu", []),
    ],
)
def test_every_word_must_be_somewhere(find: str, names: list[str]) -> None:
    wanted = KeysWanted(find=find)
    assert [one.name for one in KEYS if wanted.matches(one)] == names
