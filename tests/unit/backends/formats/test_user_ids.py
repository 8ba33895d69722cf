"""Ids of end users for providers that do not accept every form of them."""

import pytest

from backends.formats.user_ids import user_of_anthropic, user_of_chat

CODING_AGENT = f"user_{'0a' * 32}_account__session_{'1b' * 18}"


@pytest.mark.parametrize(
    ("user", "is_kept_in_a_chat", "is_kept_by_anthropic"),
    [
        ("", True, True),
        ("u1", True, True),
        ("6f1e2d3c-0000-4000-8000-00000000abcd", True, True),
        (CODING_AGENT, False, True),
        ("ada@example.org", True, False),
        ("+49 30 123456", True, False),
        ("ü" * 300, False, False),
        ("\ud800", True, False),
    ],
)
def test_an_id_is_kept_where_it_is_accepted(user: str, is_kept_in_a_chat: bool, is_kept_by_anthropic: bool) -> None:
    assert (user_of_chat(user) == user, user_of_anthropic(user) == user) == (is_kept_in_a_chat, is_kept_by_anthropic)


def test_what_replaces_an_id_is_accepted_and_tells_users_apart() -> None:
    users = [CODING_AGENT, CODING_AGENT + "x", "ada@example.org" * 20]
    said = [user_of_chat(user) for user in users]
    assert len(set(said)) == len(users)
    assert said == [user_of_chat(made) for made in said] == [user_of_anthropic(user_of_chat(user)) for user in users]
