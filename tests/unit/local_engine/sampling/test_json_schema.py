"""Keywords of JSON Schema one by one, as an answer's format and as a tool's parameters: enforced, or rejected by
name."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from jsonschema import Draft202012Validator

from local_engine.errors import InvalidRequest
from local_engine.sampling.constraints import ConstraintCompiler, requested_constraint
from local_engine.sampling.guidance import remainders
from local_engine.sampling.sampling_params import Constraint
from local_engine.sampling.tool_grammar import tool_constraint
from local_engine.text.tokenizer import Tokenizer
from tests.unit.local_engine.tiny_models import byte_level

VOCABULARY, END = 260, 257
Schema = Mapping[str, Any]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(byte_level(), chat_template=None, bos_token_id=None, eos_token_ids=[END])


@pytest.fixture(scope="module")
def constraints(tokenizer: Tokenizer) -> ConstraintCompiler:
    return ConstraintCompiler(tokenizer, VOCABULARY)


def as_format(schema: Schema) -> tuple[Constraint | None, str]:
    """(the constraint, the form of an answer with `{}` for the value)."""
    return requested_constraint({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}, None), "{}"


def as_tool(schema: Schema) -> tuple[Constraint | None, str]:
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    return tool_constraint([tool], None), '<tool_call>\n{{"name": "f", "arguments": {}}}\n</tool_call>'


ASKED = pytest.mark.parametrize("asked", [as_format, as_tool])


def allows(constraints: ConstraintCompiler, tokenizer: Tokenizer, constraint: Constraint | None, text: str) -> bool:
    """Whether the constraint allows this text as an answer, byte by byte, and then an end."""
    assert constraint is not None
    matcher = constraints.matcher(constraint)
    for token in (*tokenizer.encode(text), END):
        if not matcher.mask(torch.zeros(VOCABULARY))[token].isfinite():
            return False
        matcher.consume(token)
    return True


INTEGER, NUMBER = {"type": "integer"}, {"type": "number"}
STRING, OBJECT = {"type": "string"}, {"type": "object"}
A = {"type": "object", "properties": {"a": INTEGER}, "required": ["a"]}
TREE = {"$ref": "#/$defs/Node", "$defs": {"Node": A | {"properties": {"a": INTEGER, "next": {"$ref": "#/$defs/Node"}}}}}
POSITIVE = {"$defs": {"P": NUMBER | {"exclusiveMinimum": 0}}}
LEAST = {"$defs": {"L": {"minimum": 0.5}}}
KEYWORDS: list[tuple[str, Schema, list[str], list[str]]] = [
    ("type", {"type": ["integer", "null"]}, ["1", "-7", "null"], ["1.5", '"1"', "true", "01", "[]", ""]),
    ("number", {"type": "number"}, ["1", "-0.5", "1e9", "2E-3"], [".5", "1.", "+1", "NaN", '"1"']),
    ("enum", {"enum": [1, "é", None, {"k": [1, 2]}]}, ["1", '"é"', "null", '{"k": [1, 2]}'], ["2", '"e"', "{}"]),
    ("const", {"const": "a\u0001b\n"}, ['"a\\u0001b\\n"'], ['"ab\\n"', '"a"']),
    ("minimum", {"type": "integer", "minimum": -3, "maximum": 12}, ["-3", "0", "12"], ["-4", "13", "120"]),
    ("float bounds", {"type": "number", "minimum": 0.5, "maximum": 0.75}, ["0.5", "0.75"], ["0.49", "0.76", "9e-1"]),
    ("exclusive", {"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 6}, ["4", "5"], ["3", "6"]),
    ("near above", {"type": "number", "exclusiveMinimum": 0, "maximum": 0.5}, ["0.1", "0.5"], ["0", "0.0", "1"]),
    ("near below", {"type": "number", "minimum": -1.5, "exclusiveMaximum": -1}, ["-1.5", "-1.1"], ["-1", "-1.0"]),
    ("near in parts", {"allOf": [{"exclusiveMinimum": 0}, {"maximum": 0.5}]} | NUMBER, ["0.1", "0.5"], ["0", "0.0"]),
    ("near beside", {"maximum": 0.5, "allOf": [{"exclusiveMinimum": 0}]} | NUMBER, ["0.1", "0.5"], ["0", "0.0"]),
    ("near option", {"maximum": 0.5, "anyOf": [{"exclusiveMinimum": 0}]} | NUMBER, ["0.1", "0.5"], ["0", "0.0"]),
    ("near reference", POSITIVE | {"$ref": "#/$defs/P", "maximum": 0.5}, ["0.1", "0.5"], ["0", "0.0"]),
    ("near a reference", LEAST | {"$ref": "#/$defs/L", "exclusiveMaximum": 1} | NUMBER, ["0.6"], ["1", "1.0"]),
    ("positive", {"anyOf": [{"type": "integer", "exclusiveMinimum": 0}, {"type": "null"}]}, ["1", "20"], ["0", "-1"]),
    ("multipleOf", {"type": "integer", "multipleOf": 7}, ["0", "-14", "49"], ["1", "48"]),
    ("minLength", {"type": "string", "minLength": 2, "maxLength": 3}, ['"é😀"', '"a\\nb"'], ['"a"', '"abcd"', '"😀"']),
    ("pattern", {"type": "string", "pattern": "^[a-c]+\\d$"}, ['"abc1"'], ['"abc"', '"1"', '"abc1x"']),
    ("unanchored", {"type": "string", "pattern": "b"}, ['"b"', '"abc"'], ['"ac"', '""']),
    ("date", {"type": "string", "format": "date"}, ['"2024-02-29"'], ['"2024-13-01"', '"24-01-01"']),
    ("uuid", {"type": "string", "format": "uuid"}, ['"2eb8aa08-aa98-11ea-b4aa-73b441d16380"'], ['"2eb8aa08"']),
    ("nobody's format", {"type": "string", "format": "int64"}, ['"any"'], ["1"]),
    ("format named", OBJECT | {"properties": {"format": STRING}, "required": ["format"]}, ['{"format": ""}'], ["{}"]),
    ("items", {"type": "array", "items": INTEGER, "minItems": 1, "maxItems": 2}, ["[1, 2]"], ["[]", "[1, 2, 3]"]),
    ("prefixItems", {"type": "array", "prefixItems": [INTEGER, STRING], "items": False}, ['[1, "a"]'], ["[1, 2]"]),
    ("properties", A | {"additionalProperties": False}, ['{"a": 1}'], ["{}", '{"a": "1"}', '{"a": 1, "b": 2}']),
    ("additional", A | {"additionalProperties": STRING}, ['{"a": 1, "b": ""}'], ['{"a": 1, "b": 2}', '{"b": ""}']),
    ("required", {"type": "object", "required": ["z"]}, ['{"z": []}'], ["{}", '{"y": 1}']),
    ("minProperties", {"type": "object", "minProperties": 1, "maxProperties": 2}, ['{"x": 1}'], ["{}"]),
    ("patterns", {"type": "object", "patternProperties": {"^n": INTEGER}}, ['{"n1": 1, "m": ""}'], ['{"n1": ""}']),
    ("anyOf", {"anyOf": [A, INTEGER]}, ['{"a": 1}', "3"], ['{"b": 1}', '"3"']),
    ("oneOf apart", {"oneOf": [INTEGER, STRING]}, ["1", '"1"'], ["null", "1.5"]),
    ("allOf", {"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 5}]}, ["3", "5"], ["2", "6"]),
    ("$ref", TREE, ['{"a": 1, "next": {"a": 2}}'], ['{"a": 1, "next": {}}', '{"next": {"a": 2}}']),
    ("record", OBJECT | {"propertyNames": STRING, "additionalProperties": INTEGER}, ['{"x": 1}'], ['{"x": ""}']),
    ("repeats allowed", {"type": "array", "items": INTEGER, "uniqueItems": False}, ["[1, 1]"], ['[""]']),
    (
        "names like keywords",
        {"properties": {"uniqueItems": False, "propertyNames": STRING}, "required": ["propertyNames"]} | OBJECT,
        ['{"propertyNames": "x"}'],
        ['{"propertyNames": 1}', '{"uniqueItems": false, "propertyNames": "x"}'],
    ),
    ("values like keywords", {"const": {"uniqueItems": False}}, ['{"uniqueItems": false}'], ["{}"]),
]  # fmt: skip


@ASKED
@pytest.mark.parametrize(("schema", "good", "bad"), [case[1:] for case in KEYWORDS], ids=[case[0] for case in KEYWORDS])
def test_an_answer_is_kept_to_a_keyword(
    constraints: ConstraintCompiler, tokenizer: Tokenizer, asked: Any, schema: Schema, good: list[str], bad: list[str]
) -> None:
    constraint, answer = asked(schema)
    for text in good:
        assert Draft202012Validator(schema).is_valid(json.loads(text)), text
        assert allows(constraints, tokenizer, constraint, answer.format(text)), text
    for text in bad:
        assert not allows(constraints, tokenizer, constraint, answer.format(text)), text


@ASKED
def test_a_key_cannot_pass_for_another_by_its_spelling(
    constraints: ConstraintCompiler, tokenizer: Tokenizer, asked: Any
) -> None:
    """`\\u0061` is parsed as `a`, and could have a value that `a` must not have."""
    constraint, answer = asked(A)
    assert allows(constraints, tokenizer, constraint, answer.format('{"a": 1, "b": "x"}'))
    assert not allows(constraints, tokenizer, constraint, answer.format('{"a": 1, "\\u0061": "x"}'))


@ASKED
@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ({"not": INTEGER}, '"not"'),
        ({"if": INTEGER, "then": {"minimum": 3}}, '"if", "then"'),
        ({"type": "array", "contains": INTEGER}, '"contains"'),
        ({"type": "array", "uniqueItems": True}, '"uniqueItems"'),
        ({"type": "object", "dependentRequired": {"a": ["b"]}}, '"dependentRequired"'),
        ({"type": "object", "propertyNames": {"pattern": "^a"}}, '"propertyNames"'),
        ({"type": "object", "unevaluatedProperties": False}, '"unevaluatedProperties"'),
        ({"oneOf": [INTEGER, {"type": "number"}]}, "oneOf"),
        ({"type": "string", "format": "iri"}, "iri"),
        ({"type": "string", "pattern": "(?=a)b"}, "look-around"),
        ({"type": "integer", "minimum": 5, "maximum": 4}, "Unsatisfiable"),
        ({"type": "whole"}, "whole"),
        ({"oneOf": [INTEGER, {"type": "number"}]}, "several parts of a oneOf; write anyOf, leave it out"),
        ({"type": "string", "format": "iri"}, "iri; leave it out"),
        ({"type": "array", "uniqueItems": True}, '"x-guidance": {"lenient": true}'),
        ({"$ref": "https://example.com/schema.json"}, "example.com"),
        ({"type": "integer", "multipleOf": 2**31}, "multipleOf is kept to up to 50000"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_kept_to_is_refused_by_name(
    constraints: ConstraintCompiler, asked: Any, schema: Schema, named: str
) -> None:
    """In terms of the schema only, and with the parameter that contains it."""
    constraint, _ = asked(schema)
    with pytest.raises(InvalidRequest, match="No answer can be kept to this") as caught:
        constraints.check(constraint)
    assert named in str(caught.value)
    assert "start:" not in str(caught.value)
    assert caught.value.parameter == ("tools" if asked is as_tool else "response_format")


@ASKED
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "uniqueItems": True},
        {"type": "string", "format": "iri"},
        {"oneOf": [INTEGER, {"type": "number"}]},
    ],
    ids=str,
)
def test_the_way_out_that_a_refusal_names_is_one(constraints: ConstraintCompiler, asked: Any, schema: Any) -> None:
    constraint, _ = asked(schema | {"x-guidance": {"lenient": True}})
    constraints.check(constraint)


@pytest.mark.parametrize(
    ("source", "counted"),
    [
        ('{"multipleOf": 49999}', 49_999),
        ('{"multipleOf": 86400}', 864),
        ('{"multipleOf":0.01}', 1),
        ('{"multipleOf": 9973000}', 9_973_000),
        ('{"a": {"multipleOf": 30001}, "b": {"multipleOf": 30003}}', 60_004),
        ('start: %json {"multiple\\u004ff": 99991}', 99_991),
        ('{"multipleOf": 1e999999999}', 50_001),
        ('{"multipleOf": 1e-9}', 1),
        ('{"properties": {"multipleOf": {"type": "integer"}}, "const": "\\"multipleOf\\": 99991"}', 0),
        ('{"multipleOf": -}', 0),
    ],
)
def test_what_the_library_would_go_through_one_by_one_is_counted(source: str, counted: int) -> None:
    """A multipleOf of 2147483648 took minutes and all memory, and crashed the engine."""
    assert remainders(source) == counted


def test_a_schema_that_only_holds_itself_is_refused(constraints: ConstraintCompiler) -> None:
    constraint, _ = as_format({"$ref": "#"})
    assert constraint is not None
    with pytest.raises(InvalidRequest, match="nothing can satisfy it"):
        constraints.check(constraint)


@pytest.mark.parametrize("schema", ["{", "[]", "7", [1], True])
def test_what_is_no_schema_is_told_so(schema: Any) -> None:
    with pytest.raises(InvalidRequest, match="JSON schema") as caught:
        requested_constraint(None, {"json": schema})
    assert caught.value.parameter == "structured_outputs"


def test_a_schema_as_text_is_a_schema(constraints: ConstraintCompiler, tokenizer: Tokenizer) -> None:
    constraint = requested_constraint(None, {"json": json.dumps(A)})
    assert allows(constraints, tokenizer, constraint, '{"a": 1}')
    assert not allows(constraints, tokenizer, constraint, '{"a": ""}')


SUMS = 'root ::= (sum "=" space one "\\n")+\nsum ::= one ("+" one)*\none ::= [0-9]+ space\nspace ::= [ \\n]*'
GRAMMARS: list[tuple[str, list[str], list[str]]] = [
    # A number's blanks may be a line's end, which the rule around it needs: a token would consume all of them.
    (SUMS, ["1+2=3\n", "1 +2= 3 \n", "1=1\n\n2=2\n"], ["1+2=3", "=", "1+=2\n"]),
    ('root ::= word "d"\nword ::= [a-z]+', ["ad", "dd", "abcd"], ["d", "abc"]),
    ('root ::= "\\u00e9" [a-z\\u00C0-\\u0101]', ["éa", "éÿ", "éā"], ["é1", "a"]),
    ('root ::= "\\U0001F600" "\\\\u00e9"', ["😀\\u00e9"], ["😀é"]),
    ('root ::= ("x" | "y")* "!"?', ["", "xy!", "!"], ["!!", "z"]),
    ('root ::= "a"{2,3} [^"\\\\\\n]', ["aaa", "aaaé"], ["aa", 'aa"', "aaaa\n"]),
    ('# sums\nroot ::= term ("+" term)* # of terms\nterm ::= [0-9] | "(" root ")"', ["1+(2+3)", "((1))"], ["1+", "(1"]),
    ('start: "a"+ | /[0-9]{2}/', ["aa", "12"], ["1", "b"]),
]  # fmt: skip


@pytest.mark.parametrize(("source", "good", "bad"), GRAMMARS)
def test_an_answer_is_kept_to_a_grammar(
    constraints: ConstraintCompiler, tokenizer: Tokenizer, source: str, good: list[str], bad: list[str]
) -> None:
    constraint = requested_constraint(None, {"grammar": source})
    assert [text for text in good if not allows(constraints, tokenizer, constraint, text)] == []
    assert [text for text in bad if allows(constraints, tokenizer, constraint, text)] == []


EXPRESSIONS: list[tuple[str, list[str], list[str]]] = [
    ("^a+$", ["a", "aaa"], ["", "ba"]),
    ("yes|no", ["yes", "no"], ["yesno", "y"]),
    ("[^a]", ["é", "😀", "\n"], ["a", ""]),
    (".", ["x", "é"], ["\n", "xy"]),
    ("(?i)ab", ["aB", "AB"], ["a"]),
    ("[😀-😎]{2}", ["😁😎"], ["😁", "😏😏"]),
    ("\\p{Lu}\\u00e9", ["Äé"], ["äé"]),
]


@pytest.mark.parametrize(("source", "good", "bad"), EXPRESSIONS)
def test_an_answer_is_the_whole_of_an_expression(
    constraints: ConstraintCompiler, tokenizer: Tokenizer, source: str, good: list[str], bad: list[str]
) -> None:
    constraint = requested_constraint(None, {"regex": source})
    assert [text for text in good if not allows(constraints, tokenizer, constraint, text)] == []
    assert [text for text in bad if allows(constraints, tokenizer, constraint, text)] == []


@pytest.mark.parametrize("source", ["(?=a)a", "(a)\\1", "[", "a\\b"])
def test_an_expression_that_is_not_kept_to_is_refused(constraints: ConstraintCompiler, source: str) -> None:
    constraint = requested_constraint(None, {"regex": source})
    assert constraint is not None
    with pytest.raises(InvalidRequest, match="No answer can be kept to this regex") as caught:
        constraints.check(constraint)
    assert caught.value.parameter == "structured_outputs"
