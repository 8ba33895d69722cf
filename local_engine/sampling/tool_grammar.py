"""Grammars of answers that must, or may, call tools, in a model's own format. Knows no library that follows them."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from local_engine.errors import InvalidRequest
from local_engine.sampling.json_schema import guided_schema
from local_engine.sampling.sampling_params import Constraint
from local_engine.text.tool_formats import TAGS, ToolFormat
from local_engine.text.tool_marks import LLAMA

ANY_OBJECT: Final[Mapping[str, Any]] = {"type": "object"}


@dataclass(frozen=True, slots=True)
class CallWriting:
    """A model's format, and the ids of its marks that are tokens: the library never makes such a token of text."""

    form: ToolFormat = TAGS
    marks: Mapping[str, int] = field(default_factory=dict[str, int])

    def marked(self) -> "CallWriting":
        """The same with a mark before the calls, which tells them from an answer that is JSON."""
        if self.form.is_marked:
            return self
        return replace(self, form=replace(self.form, opens=LLAMA) if LLAMA in self.marks else TAGS)

    def terms(self, before: str, name: str = "", after: str = "") -> str:
        """Texts as terms of a rule, marks among them as tokens; a `name` has none. Empty where there is nothing."""
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
    """A grammar of one tool call, or of `several`: any of the tools, or the one of that name."""
    functions = [function_of(tool) for tool in tools]
    wanted = [function for function in functions if name is None or function.get("name") == name]
    if not wanted:
        raise InvalidRequest(f"tool_choice names no tool of this request: {name}.", parameter="tool_choice")
    return Constraint("grammar", f"start: calls\n{_calls(wanted, writing or CallWriting(), several=several)}", "tools")


def form_or_calls(
    form: Constraint, tools: Sequence[Mapping[str, Any]], writing: CallWriting, *, several: bool
) -> Constraint:
    """An answer in a JSON schema, or calls."""
    calls = _calls([function_of(tool) for tool in tools], writing.marked(), several=several, only_strict=True)
    return Constraint("grammar", f"start: form | calls\nform: %json {form.source}\n{calls}", form.parameter)


def strict_calls(tools: Sequence[Mapping[str, Any]], writing: CallWriting) -> Constraint | None:
    """What an answer must keep to that may call: the schemas of `strict` tools. None where no tool is, or where no
    token tells that a call begins."""
    functions = [function_of(tool) for tool in tools]
    begins = f"{writing.form.opens}{writing.form.before_name}"
    mark = next((number for mark, number in writing.marks.items() if begins.startswith(mark)), None)
    if mark is None or not any(function.get("strict") is True for function in functions):
        return None
    # In a list further calls follow without the mark.
    calls = _calls(functions, writing, several=bool(writing.form.opens), only_strict=True)
    return Constraint("grammar", f"start: calls\n{calls}", "tools", mark)


def function_of(tool: Mapping[str, Any]) -> dict[str, Any]:
    """What a tool is called and takes; raises InvalidRequest where that is not said."""
    function = tool.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise InvalidRequest("Every tool needs a function with a name.", parameter="tools")
    if not isinstance(function.get("parameters") or {}, dict):
        raise InvalidRequest("A function's parameters are a JSON schema, an object.", parameter="tools")
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
    """One tool's call. Its arguments' schema is a root of its own, since its `$ref` count from there."""
    form = writing.form
    try:
        schema = guided_schema((function.get("parameters") if is_held else None) or ANY_OBJECT)
    except RecursionError as error:
        raise InvalidRequest("A function's parameters are nested too deeply.", parameter="tools") from error
    head = writing.terms(form.before_name, form.name_of(function["name"]), form.before_arguments)
    after = writing.terms(form.after_arguments)
    return f"call{number}: {head} arguments{number} {after}\narguments{number}: %json {schema}\n"
