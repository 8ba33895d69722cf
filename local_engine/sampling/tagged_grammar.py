"""Grammar of call arguments with a tag around each, as Qwen3-Coder writes them. Knows no library."""

import json
from collections.abc import Mapping
from typing import Any, Final

from local_engine.sampling.json_schema import guided_schema
from local_engine.text.tagged_arguments import properties_of, takes_text, texts_of
from local_engine.text.tool_marks import CLOSE, FUNCTION_CLOSE, PARAMETER_CLOSE, PARAMETER_OPEN

ENDS: Final = json.dumps(f"\n{PARAMETER_CLOSE}\n")
# Tags that would end a text when parsed. The slash is escaped, as it ends a regular expression.
NOT_IN_TEXT: Final = "|".join((PARAMETER_CLOSE, PARAMETER_OPEN, FUNCTION_CLOSE, CLOSE)).replace("/", r"\/")
TEXT: Final = rf"(/(.|\n)*/ & ~/(.|\n)*({NOT_IN_TEXT})(.|\n)*/) {ENDS}"
DEFINED: Final = ("$defs", "definitions")


def tagged_rules(number: int, schema: Mapping[str, Any] | None) -> str:
    """The rule `arguments` of this number: the schema's properties in order, or anything without a schema."""
    properties, needed = properties_of(schema)
    if schema is None or not properties or any(">" in name or "\n" in name for name in properties):
        return f"arguments{number}: ANY{number}*\nANY{number}: /{PARAMETER_OPEN}[^>\\n]+>\\n/ {TEXT}\n"
    several = [f"argument{number}_{place}{'' if name in needed else '?'}" for place, name in enumerate(properties)]
    rules = [
        f"argument{number}_{place}: {json.dumps(f'{PARAMETER_OPEN}{name}>' + chr(10))} "
        + _value(f"{number}_{place}", one, schema)
        for place, (name, one) in enumerate(properties.items())
    ]
    return "".join([f"arguments{number}: {' '.join(several)}\n", *rules])


def _value(number: str, schema: Any, root: Mapping[str, Any]) -> str:
    """What follows a tag, up to the end of its closing tag, and the rules that this needs."""
    if (texts := texts_of(schema, root)) is not None:
        return f"({' | '.join(map(json.dumps, texts))}) {ENDS}\n"
    if takes_text(schema, root):
        return f"TEXT{number}\nTEXT{number}: {TEXT}\n"
    own = {name: root[name] for name in DEFINED if name in root}
    return f"value{number} {ENDS}\nvalue{number}: %json {guided_schema(own | schema)}\n"
