"""Constraints at work: what a required tool call may contain, and which bans must yield to a schema."""

import json
import re
import sys
import threading
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
import torch
from llguidance import LLMatcher
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import decoders

from local_engine.errors import InvalidRequest
from local_engine.request import Request
from local_engine.sampling import guidance
from local_engine.sampling.constraints import ConstraintCompiler, Matcher, requested_constraint
from local_engine.sampling.sampler import Sampler
from local_engine.sampling.sampling_params import Constraint, SamplingParams
from local_engine.sampling.tool_grammar import tool_constraint
from local_engine.text.tokenizer import Tokenizer
from tests.unit.local_engine.tiny_models import byte_level

VOCABULARY, END = 260, 257
# More optional properties than the library can follow at once.
TOO_WIDE: dict[str, Any] = {
    "type": "object",
    "properties": {f"p{number}": {"type": "boolean"} for number in range(1000)},
    "additionalProperties": False,
}
TOWN: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}, "additionalProperties": False}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(byte_level(), chat_template=None, bos_token_id=None, eos_token_ids=[END])


@pytest.fixture(scope="module")
def constraints(tokenizer: Tokenizer) -> ConstraintCompiler:
    return ConstraintCompiler(tokenizer, VOCABULARY)


def tool(name: str, parameters: dict[str, Any] | None) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name} | ({"parameters": parameters} if parameters else {})}


def takes(matcher: Matcher, token_ids: list[int]) -> bool:
    """Whether the constraint allows these tokens, in order, and then an end."""
    for token in (*token_ids, END):
        if not matcher.mask(torch.zeros(VOCABULARY))[token].isfinite():
            return False
        matcher.consume(token)
    return True


@pytest.mark.parametrize(
    ("call", "is_allowed"),
    [
        ({"name": "visit", "arguments": {"town": {"name": "Ulm"}, "next": {"town": {"name": "Bonn"}}}}, True),
        ({"name": "visit", "arguments": {"town": {"nom": "Ulm"}}}, False),
        ({"name": 'a "quoted"\nname', "arguments": {"count": 3}}, True),
        ({"name": 'a "quoted"\nname', "arguments": {"town": {"name": "Ulm"}}}, False),
        ({"name": "anything", "arguments": {"x": [1, None]}}, True),
        ({"name": "unheard-of", "arguments": {}}, False),
    ],
    ids=json.dumps,
)
def test_a_tools_schema_may_refer_to_its_own_definitions(
    tokenizer: Tokenizer, constraints: ConstraintCompiler, call: dict[str, Any], *, is_allowed: bool
) -> None:
    """Pydantic writes `$defs` for every nested model, and a schema may refer to itself."""
    visit: dict[str, Any] = {
        "type": "object",
        "properties": {"town": {"$ref": "#/$defs/Town"}, "next": {"$ref": "#"}},
        "additionalProperties": False,
        "$defs": {"Town": TOWN},
    }
    counts = {"type": "object", "properties": {"count": {"type": "integer"}}, "additionalProperties": False}
    tools = [tool("visit", visit), tool('a "quoted"\nname', counts), tool("anything", None)]
    text = f"<tool_call>\n{json.dumps(call)}\n</tool_call>"
    matcher = constraints.matcher(tool_constraint(tools, None))
    assert takes(matcher, tokenizer.encode(text)) is is_allowed


@dataclass
class Counted:
    """A tokenizer that counts how often its vocabulary is indexed."""

    tokenizer: Tokenizer
    indexed: list[int] = field(default_factory=list[int])

    @property
    def fast(self) -> "Counted":
        return self

    def to_str(self) -> str:
        self.indexed.append(threading.get_ident())
        return self.tokenizer.fast.to_str()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tokenizer, name)


def test_the_first_requests_index_the_vocabulary_once(tokenizer: Tokenizer) -> None:
    counted, together = Counted(tokenizer), threading.Barrier(4)
    compiler = ConstraintCompiler(cast(Tokenizer, counted), VOCABULARY)

    def ask() -> None:
        together.wait()
        compiler.check(Constraint("regex", "a+"))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(counted.indexed) == 1


def test_a_vocabulary_that_cannot_be_indexed_takes_no_constraints() -> None:
    fast = byte_level()
    fast.decoder = decoders.CTC()
    compiler = ConstraintCompiler(
        Tokenizer(fast, chat_template=None, bos_token_id=None, eos_token_ids=[END]), VOCABULARY
    )
    compiler.prepare()
    with pytest.raises(InvalidRequest, match="vocabulary cannot be read"):
        compiler.check(Constraint("regex", "a"))


def test_matchers_of_one_constraint_know_nothing_of_one_another(
    tokenizer: Tokenizer, constraints: ConstraintCompiler
) -> None:
    """Though they come from a single compilation."""
    first, second = (constraints.matcher(Constraint("regex", "ab")) for _ in range(2))
    a, b = tokenizer.encode("ab")
    first.consume(a)
    assert takes(second, [a, b])
    assert takes(first, [b])


def test_thousands_of_choices_are_followed(tokenizer: Tokenizer, constraints: ConstraintCompiler) -> None:
    """Each used to be a rule, and above two thousand the answer was an error."""
    labels = [f"label {number}" for number in range(2500)] + ["Paris", "Paris, Texas", "日本", "😀", 'a "b"\n', "^.*"]
    constraint = requested_constraint(None, {"choice": labels})
    assert constraint is not None
    for text in ("label 7", "label 2499", *labels[2500:]):
        assert takes(constraints.matcher(constraint), tokenizer.encode(text)), text
    for text in ("label 2500", "label", "Paris, ", "^a"):
        assert not takes(constraints.matcher(constraint), tokenizer.encode(text)), text


@pytest.fixture(scope="module")
def marked() -> tuple[Tokenizer, ConstraintCompiler]:
    """A vocabulary with marks of all kinds (special, ordinary, and one made of several pieces), and an unused id."""
    raw = json.loads(byte_level().to_str())
    raw["model"]["vocab"] |= {"<s>": 256, "</s>": END, "<|": 300, "<|>": 301}
    raw["model"]["merges"] += [["<", "|"], ["<|", ">"]]
    fast = FastTokenizer.from_str(json.dumps(raw))
    fast.add_special_tokens(["<|im_end|>", "[TOOL_CALLS]", "<|>"])
    fast.add_tokens(["<tool_call>", "  "])
    tokenizer = Tokenizer(fast, chat_template=None, bos_token_id=None, eos_token_ids=[END])
    return tokenizer, ConstraintCompiler(tokenizer, tokenizer.vocabulary_size)


SPELT = "a<|im_end|>[TOOL_CALLS]<tool_call>  <|>b"


@pytest.mark.parametrize(
    ("kind", "source", "answer"),
    [
        ("choice", [SPELT], SPELT),
        ("json", {"enum": [SPELT]}, json.dumps(SPELT)),
        (
            "json",
            {"type": "object", "additionalProperties": False, "properties": {SPELT: {"const": 1}}, "required": [SPELT]},
            json.dumps({SPELT: 1}),
        ),
        ("json", {"type": "string", "pattern": f"^{re.escape(SPELT)}$"}, json.dumps(SPELT)),
        ("regex", re.escape(SPELT), SPELT),
        ("grammar", f'start: "{SPELT}" // <|im_end|>', SPELT),
        ("grammar", f"start: A\nA: /{re.escape(SPELT)}/", SPELT),
        ("grammar", f'root ::= "{SPELT}"', SPELT),
    ],
)
def test_what_spells_a_special_token_is_text(
    marked: tuple[Tokenizer, ConstraintCompiler], kind: str, source: Any, answer: str
) -> None:
    """The library took such text for the token, which it then rejected, and the answer broke off."""
    tokenizer, constraints = marked
    constraint = requested_constraint(None, {kind: source})
    assert constraint is not None
    matcher, random = constraints.matcher(constraint), torch.Generator().manual_seed(1)
    drawn: list[int] = []
    while not matcher.is_complete and (not drawn or drawn[-1] != END):
        drawn.append(int(matcher.mask(torch.rand(tokenizer.vocabulary_size, generator=random)).argmax()))
        matcher.consume(drawn[-1])
    assert matcher.failure is None
    assert tokenizer.special_token_ids.isdisjoint(drawn) or drawn.pop() == END
    text = tokenizer.decode(drawn)
    assert json.loads(text) == json.loads(answer) if kind == "json" else text == answer


def test_a_grammar_names_special_tokens(marked: tuple[Tokenizer, ConstraintCompiler]) -> None:
    """In Lark's notation, without quotes."""
    tokenizer, constraints = marked
    matcher = constraints.matcher(Constraint("grammar", 'start: "<|" <tool_call> /b/ # "it\'s" <|>'))
    for token in tokenizer.encode("<|<tool_call>b"):
        assert matcher.mask(torch.zeros(tokenizer.vocabulary_size))[token].isfinite()
        matcher.consume(token)
    assert matcher.is_complete
    with pytest.raises(InvalidRequest, match=r'unknown special token: "<nope>"$'):
        constraints.check(Constraint("grammar", "start: <nope>"))


def test_a_matcher_that_gave_up_says_why(tokenizer: Tokenizer, constraints: ConstraintCompiler) -> None:
    """The library then allows an end, which would look like the answer's own."""
    matcher = constraints.matcher(Constraint("json_schema", json.dumps(TOO_WIDE)))
    assert matcher.failure is None
    for token in tokenizer.encode('{"p'):
        matcher.consume(token)
    matcher.mask(torch.zeros(VOCABULARY))
    assert "items" in (matcher.failure or "")


def test_a_constraint_that_the_library_breaks_on_is_refused_without_its_stack(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 12,000 fields, which takes seconds; callers were shown forty lines of the library's functions."""

    class Broken:
        grammar_from_json_schema = LLMatcher.grammar_from_json_schema
        grammar_from_regex = LLMatcher.grammar_from_regex

        def __init__(self, *_: object, **__: object) -> None: ...

        def is_error(self) -> bool:
            return True

        def get_error(self) -> str:
            return "panic: assertion failed: symbols < u16::MAX\n<backtrace>\n   0: <unknown>\n   1: type_call\n"

    monkeypatch.setattr(guidance, "LLMatcher", Broken)
    with pytest.raises(InvalidRequest) as refused:
        ConstraintCompiler(tokenizer, VOCABULARY).matcher(Constraint("regex", "a"))
    assert str(refused.value).startswith("No answer can be kept to this regex: it is too large")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_ban_that_leaves_a_schema_nothing_gives_way(
    tokenizer: Tokenizer, constraints: ConstraintCompiler, temperature: float
) -> None:
    """If it leaves something, it stays in force."""
    banned = tuple((token,) for token in tokenizer.encode("{b"))
    params = SamplingParams(
        temperature=temperature, seed=1, banned=banned, constraint=Constraint("regex", r"\{(a|b)\}"), max_tokens=8
    )
    sampler, request = Sampler(torch.device("cpu"), constraints), Request("answer", [0], params)
    logits = torch.zeros(1, VOCABULARY)
    logits[0, tokenizer.encode("b")] = 9.0
    is_complete = False
    while not is_complete and request.output_tokens < params.max_tokens:
        [drawn] = sampler.draw(logits, [request])
        request.token_ids += drawn.token_ids
        is_complete = drawn.is_complete
    assert tokenizer.decode(request.output_token_ids) == "{a}"


def test_without_its_library_a_constraint_is_refused_in_a_sentence(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = cast("dict[str, Any]", sys.modules)
    monkeypatch.delitem(modules, "local_engine.sampling.guidance", raising=False)
    monkeypatch.setitem(modules, "llguidance", None)
    with pytest.raises(InvalidRequest, match="without the Python package llguidance"):
        ConstraintCompiler(tokenizer, VOCABULARY).check(Constraint("regex", "a+"))
