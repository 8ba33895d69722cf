"""The JSON schema that a chat's `response_format` asks for, wherever clients write it. Pure."""

from collections.abc import Mapping
from typing import Final

import msgspec

from backends.formats.json_objects import decode_object, part_of

JSON_KINDS: Final = ("json_schema", "json_object", "json")
"""The types that ask for JSON; `json` is text-generation-inference's."""


def schema_in(form: Mapping[str, object]) -> object:
    """OpenAI clients put it in `json_schema`; those of llama.cpp, Fireworks and Together next to the type, as `schema`;
    Hugging Face's there too, as `value`. None if there is none."""
    places = (part_of(form, "json_schema").get("schema"), form.get("schema"), form.get("value"))
    return next((schema for schema in places if schema is not None), None)


def without_value(form: bytes) -> bytes:
    """A `response_format` with Hugging Face's `value` rewritten in OpenAI's form, which text-generation-inference reads
    too; other servers would ignore `value`. The same bytes if there is none."""
    fields = decode_object(form) if b'"value"' in form else None
    if fields is None or fields.get("type") not in JSON_KINDS or not isinstance(fields.get("value"), dict):
        return form
    described = {"name": "answer", "schema": schema_in(fields)}
    return msgspec.json.encode({"type": "json_schema", "json_schema": described})
