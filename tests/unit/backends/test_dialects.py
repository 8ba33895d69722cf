"""The table of providers in docs/translation.md agrees with the dialects."""

import json
from pathlib import Path

import pytest

from backends.dialects import DIALECTS, PLAIN, Dialect, dialect_of
from backends.protocol import Call, Operation
from backends.scripted import Outcome, ScriptedBackend, follow
from backends.translating import TranslatingBackend

DOCUMENT = Path(__file__).parents[3] / "docs" / "translation.md"
REASONING: dict[str, object] = {"reasoning": {"effort": "low"}}
THINKING: dict[str, object] = {"thinking": {"type": "disabled"}}
HEAD = "| provider | sent instead | left out | left out of messages |"


def rows() -> list[list[str]]:
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    start = lines.index(HEAD)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[start + 2 : lines.index("", start)]]


def listed(names: frozenset[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def told(dialect: Dialect) -> str:
    """The dialect's replacements as in the table: names, efforts, tiers, the developer role."""
    said = {f"`{theirs}`": f"`{ours}`" for theirs, ours in dialect.renames.items()}
    said |= {f"`{theirs}`": "`reasoning_effort`" for theirs in dialect.says_by_effort}
    said |= {f"an effort of `{theirs}`": f"`{ours}`" for theirs, ours in dialect.efforts.items()}
    said |= {f"a service tier of `{theirs}`": f"`{ours}`" for theirs, ours in dialect.tiers.items()}
    return ", ".join(
        [f"{ours} for {theirs}" for theirs, ours in said.items()] + ["`developer`"] * dialect.takes_developer
    )


def test_the_table_is_what_is_spoken() -> None:
    expected = [
        [
            f"`{provider}`",
            told(dialect),
            "; ".join(
                filter(
                    None,
                    (
                        listed(dialect.lacks | dialect.withheld),
                        f"while it thinks {listed(lacks)}" if (lacks := dialect.thinkers_lack) else "",
                    ),
                )
            ),
            listed(
                dialect.message_lacks
                | dialect.call_lacks
                | ({"cache_control"} if dialect.refuses_cache_marks else set[str]())
            )
            + ("`name` of others than users" if dialect.names_users_alone else ""),
        ]
        for provider, dialect in sorted(DIALECTS.items(), key=lambda item: (item[0] != "openai", item[0]))
    ]
    assert rows() == [row for row in expected if any(row[1:])]


def test_no_field_has_two_fates() -> None:
    for dialect in DIALECTS.values():
        assert not (dialect.lacks | dialect.withheld) & (dialect.renames.keys() | set(dialect.renames.values()))


def test_who_is_not_known_to_differ_is_asked_as_openai_is() -> None:
    assert dialect_of("another") is PLAIN
    assert PLAIN.asks_for_usage


def test_who_refuses_stream_options_is_never_sent_any() -> None:
    for dialect in DIALECTS.values():
        assert dialect.asks_for_usage == ("stream_options" not in dialect.lacks)


@pytest.mark.parametrize(
    ("provider", "native", "asked", "effort"),
    [
        ("openai", ("responses",), REASONING, "low"),
        ("openai", ("responses",), THINKING, "none"),
        ("", ("messages",), REASONING, "low"),
        ("", ("messages",), THINKING, None),
        ("", ("generate_content",), REASONING, "low"),
        ("", ("generate_content",), THINKING, "none"),
        ("openrouter", (), REASONING, None),
        ("deepseek", (), THINKING, None),
        ("", (), REASONING, None),
    ],
)
async def test_what_others_say_about_reasoning_is_an_effort_where_it_is_not_known(
    provider: str, native: tuple[Operation, ...], asked: dict[str, object], effort: str | None
) -> None:
    inner = ScriptedBackend("one", follow([Outcome()]), keeps_calls=True)
    backend = TranslatingBackend(inner, native=native, dialect=dialect_of(provider))
    body = json.dumps({"messages": []} | asked).encode()
    await (await backend.open(Call("chat.completions", "m", body, False, "r-1"))).aclose()
    sent = json.loads(inner.calls[0].body)
    assert sent.get("reasoning_effort") == effort
    assert sent.keys().isdisjoint(asked) == (effort is not None)
