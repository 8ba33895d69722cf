"""Pictures under the type that their bytes have."""

import json
from typing import Any

import pytest

from backends.formats.image_types import with_true_types

PICTURES = {"png": "iVBORw0KGgoAAAA", "jpeg": "/9j/4AAQ", "gif": "R0lGODlhAQ", "webp": "UklGRiQAAA"}


def block(media_type: str, data: str) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def part(media_type: str, data: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:{media_type};base64,{data}", "detail": "low"}}


def shown(*pictures: dict[str, Any]) -> bytes:
    result = {"type": "tool_result", "tool_use_id": "c", "content": list(pictures)}
    return json.dumps([{"role": "user", "content": [{"type": "text", "text": "a"}, *pictures, result]}]).encode()


@pytest.mark.parametrize("make", [block, part])
@pytest.mark.parametrize("kind", PICTURES)
def test_a_picture_has_its_own_type(make: Any, kind: str) -> None:
    data, other = PICTURES[kind], "image/png" if kind == "jpeg" else "image/jpeg"
    told = shown(make(f"image/{kind}", data))
    assert json.loads(with_true_types(shown(make(other, data)))) == json.loads(told)
    assert with_true_types(told) is told


def test_what_is_no_known_picture_keeps_its_bytes() -> None:
    link = {"type": "image_url", "image_url": {"url": "https://x/base64,"}}
    for one in (block("image/png", "AAAA"), part("image/png", "AAAA"), link, {"type": "image", "source": 7}):
        assert with_true_types(shown(one)) == shown(one)
    assert with_true_types(b"[]") == b"[]"
