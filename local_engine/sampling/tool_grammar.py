"""Grammars for answers that must, or may, call tools, in a model's own format. Knows no grammar library."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from local_engine.errors import InvalidRequest
from local_engine.sampling.json_schema import guided_schema
from local_engine.sampling.sampling_params import Constraint
from local_engine.sampling.tagged_grammar import tagged_rules
from local_engine.text.tool_formats import TAGS, ToolFormat
from local_engine.text.tool_marks import LLAMA, MARKS

ANY_OBJECT: Final[Mapping[str, Any]] = {"type": "object"}
ANY: Final = r"(.|\n)*"
JSON_BLANK: Final = r"[ \t\r\n]"
# Gemma often writes a fence around it; Llama 3.2 often states its type first.
BARE_HEAD: Final = r'\s*(```(json)?\s*)?\{\s*("type"\s*:\s*"function"\s*,\s*)?"name"\s*:\s*'


@dataclass(frozen=True, slots=True)
class CallWriting:
    """A model's format, and the ids of marks that are tokens: the library never produces such a token from text."""

    form: ToolFormat = TAGS
    marks: Mapping[str, int] = field(default_factory=dict[str, int])

    def marked(self) -> "CallWriting":
        """The same with a mark before the calls, which distinguishes them from a JSON answer."""
        if self.form.is_marked:
            return self
        return replace(self, form=replace(self.form, opens=LLAMA) if LLAMA in self.marks else TAGS)

    def terms(self, before: str, name: str = "", after: str = "") -> str:
        """Texts as terms of a rule, with marks as tokens, except in `name`. Empty if there is no text."""
        pattern = "|".join(map(re.escape, self.marks)) or "(?!)"
        terms, text = list[str](), ""
        for is_ours, part in ((True, before), (False, name), (True, after)):
            for piece in re.split(f"({pattern})", part) if is_ours else [part]:
                if is_ours and piece in self.marks:
                    terms += [json.dumps(text)] * bool(text) + [f"<[{self.marks[piece]}]>"]
                    text = ""
                else:
                    text += piece
        return " ".join(terms + [json.dumps(text)] * bool(text))


def tool_constraint(
    tools: Sequence[Mapping[str, Any]], name: str | None, writing: CallWriting | None = None, *, several: bool = False
) -> Constraint:
    """A grammar for one tool call, or `several`: of any of the tools, or the one named."""
    functions = [function_of(tool) for tool in tools]
    wanted = [function for function in functions if name is None or function.get("name") == name]
    if not wanted:
        raise InvalidRequest(f"tool_choice names no tool of this request: {name}.", parameter="tool_choice")
    return Constraint("grammar", f"start: calls\n{_calls(wanted, writing or CallWriting(), several=several)}", "tools")


def form_or_calls(
    form: Constraint, tools: Sequence[Mapping[str, Any]], writing: CallWriting, *, several: bool
) -> Constraint:
    """A grammar for an answer matching a JSON schema, or calls."""
    calls = _calls([function_of(tool) for tool in tools], writing.marked(), several=several, only_strict=True)
    return Constraint("grammar", f"start: form | calls\nform: %json {form.source}\n{calls}", form.parameter)


def strict_calls(tools: Sequence[Mapping[str, Any]], writing: CallWriting) -> Constraint | None:
    """The constraint on an answer that may call tools: the schemas of `strict` ones. None if no tool is strict."""
    functions = [function_of(tool) for tool in tools]
    if not any(function.get("strict") is True for function in functions):
        return None
    form = writing.form
    mark = next((mark for mark in MARKS if f"{form.opens}{form.before_name}".startswith(mark)), None)
    if mark is None:
        return Constraint("grammar", _text_or_bare_calls(functions, writing), "tools")
    # In a list, further calls follow without the mark.
    is_list = bool(form.opens)
    if mark in writing.marks:
        calls = _calls(functions, writing, several=is_list, only_strict=True)
        return Constraint("grammar", f"start: calls\n{calls}", "tools", writing.marks[mark])
    name = "opens" if is_list else "before_name"
    behind = replace(writing, form=replace(form, **{name: getattr(form, name).removeprefix(mark)}))
    calls = _calls(functions, behind, several=is_list, only_strict=True)
    source = f"start: (BEFORE calls)* SAID\nBEFORE: SAID {json.dumps(mark)}\n{_said(f'{ANY}{escaped(mark)}')}{calls}"
    return Constraint("grammar", source, "tools")


def _text_or_bare_calls(functions: Sequence[Mapping[str, Any]], writing: CallWriting) -> str:
    """Text, or JSON that names a tool and so is a call, with any spacing: the names distinguish it from other JSON."""
    names = [escaped(json.dumps(function["name"], ensure_ascii=False)) for function in functions]
    calls = range(len(functions))
    head = BARE_HEAD.replace(r"\s", JSON_BLANK)
    keys = r'\s*,\s*"(parameters|arguments)"\s*:\s*'.replace(r"\s", JSON_BLANK)
    rules = [
        f"call{number}: HEAD{number} arguments{number} CLOSES\nHEAD{number}: /{head}{names[number]}{keys}/\n"
        + _arguments_rule(functions[number], number, is_held=functions[number].get("strict") is True)
        for number in calls
    ]
    said = _said(f"{BARE_HEAD}({'|'.join(names)})")
    marked = f"(<[{writing.marks[LLAMA]}]> calls)?" if LLAMA in writing.marks else ""
    return "".join(
        [
            f"start: calls | SAID {marked}\n{said}",
            f"calls: call (/{JSON_BLANK}*;/ call)* (/{JSON_BLANK}*```/)?\n",
            f"call: {' | '.join(f'call{number}' for number in calls)}\n",
            f"CLOSES: /{JSON_BLANK}*\\}}/\n",
            *rules,
        ]
    )


def _said(never: str) -> str:
    """The rule for text that does not begin with the regular expression `never`."""
    return f"SAID: /{ANY}/ & ~/{never}{ANY}/\n"


def escaped(text: str) -> str:
    """Text escaped for a grammar's regular expression, which ends at a slash."""
    return re.escape(text).replace("/", r"\/")


def function_of(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A tool's name and parameters; raises InvalidRequest if they are missing or malformed."""
    function = tool.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise InvalidRequest("Every tool needs a function with a name.", parameter="tools")
    if not isinstance(function.get("parameters") or {}, dict):
        raise InvalidRequest("A function's parameters must be a JSON schema, an object.", parameter="tools")
    return function


def _calls(
    functions: Sequence[Mapping[str, Any]], writing: CallWriting, *, several: bool, only_strict: bool = False
) -> str:
    form = writing.form
    one = " | ".join(f"call{number}" for number in range(len(functions)))
    more = f" ({writing.terms(form.between)} call)*" if several else ""
    rules = [
        _call_rules(function, number, writing, is_held=not only_strict or function.get("strict") is True)
        for number, function in enumerate(functions)
    ]
    opens, closes = writing.terms(form.opens), writing.terms(form.closes)
    return "".join([f"calls: {opens} call{more} {closes}\ncall: {one}\n", *rules])


def _call_rules(function: Mapping[str, Any], number: int, writing: CallWriting, *, is_held: bool) -> str:
    """The rules of one tool's call."""
    form = writing.form
    head = writing.terms(form.before_name, form.name_of(function["name"]), form.before_arguments)
    after = writing.terms(form.after_arguments)
    if form.has_tagged_arguments:
        arguments = tagged_rules(number, (function.get("parameters") or {}) if is_held else None)
    else:
        arguments = _arguments_rule(function, number, is_held=is_held)
    return f"call{number}: {head} arguments{number} {after}\n{arguments}"


def _arguments_rule(function: Mapping[str, Any], number: int, *, is_held: bool) -> str:
    """The schema is a root of its own, as its `$ref`s are relative to it."""
    try:
        schema = guided_schema((function.get("parameters") if is_held else None) or ANY_OBJECT)
    except RecursionError as error:
        raise InvalidRequest("A function's parameters are nested too deeply.", parameter="tools") from error
    return f"arguments{number}: %json {schema}\n"
