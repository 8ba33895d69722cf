"""Suggestions of a filter's fields: each value once, keys by name, and no markup that could break out of its option."""

from dashboards.suggestions import MOST, suggested

MODELS = [
    {"name": "small", "backend": "local"},
    {"name": "big", "backend": "openai"},
    {"name": "mid", "backend": "openai"},
]
KEYS = [
    {"id": "key_2", "name": "web", "team": "red", "project": None, "tags": ["eu", "batch"]},
    {"id": "key_1", "name": "cron", "team": "red", "project": "night", "tags": ["eu"]},
]


def test_each_value_is_suggested_once_and_a_key_by_its_name() -> None:
    known = suggested(MODELS, KEYS).by_field
    assert list(known["backend"]) == ["local", "openai"]
    assert list(known["team"]) == ["red"]
    assert list(known["project"]) == ["night"]
    assert list(known["tag"]) == ["batch", "eu"]
    assert known["key_id"] == {"key_1": "cron", "key_2": "web"}


def test_a_field_is_markup_of_ours_with_text_of_others() -> None:
    hostile = suggested([], [{"id": 'k"><script>', "name": "<b>", "team": None, "project": None, "tags": []}])
    field = hostile.field("key", "Key is", '"><i>')
    assert 'value="k&quot;&gt;&lt;script&gt;">&lt;b&gt;</option>' in field
    assert 'value="&quot;&gt;&lt;i&gt;"' in field


def test_of_very_many_some_are_suggested() -> None:
    keys = [
        {"id": f"key_{n}", "name": f"{n:05d}", "team": f"t{n:05d}", "project": None, "tags": []} for n in range(9999)
    ]
    known = suggested([], keys).by_field
    assert len(known["key"]) == len(known["team"]) == MOST
