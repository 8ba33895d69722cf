"""Minimal versions of the families' chat templates with tools, and the marks that are tokens in each family."""

from dataclasses import dataclass

from tokenizers import AddedToken

from local_engine.text.tokenizer import Tokenizer
from tests.unit.local_engine.tiny_models import byte_level

LLAMA = """{% if tools is not none %}Environment: ipython{% endif %}
{%- for m in messages %}
{%- if 'tool_calls' in m %}
{%- if not m.tool_calls | length == 1 %}{{ raise_exception("one call at a time") }}{% endif %}
{%- set call = m.tool_calls[0].function %}
{%- if builtin is defined %}{{ '<|python_tag|>' }}{% endif %}
{{- '[assistant]{"name": "' + call.name + '", "parameters": ' }}{{ call.arguments | tojson }}{{ '}</s>' }}
{%- elif m.role == 'tool' %}{{ '[ipython]' + m.content | tojson + '</s>' }}
{%- else %}{{ '[' + m.role + ']' + m.content | trim + '</s>' }}{% endif %}
{%- endfor %}{{ '[assistant]' }}"""

MISTRAL = """{% for m in messages %}
{%- if m.role == 'user' %}{% if tools is not none %}[AVAILABLE_TOOLS]{% endif %}[INST]{{ m.content }}[/INST]
{%- elif m.tool_calls is defined %}
{{- '[TOOL_CALLS] [' }}
{%- for call in m.tool_calls %}
{%- if call.id is not defined or call.id | length != 9 %}{{ raise_exception("ids have nine characters") }}{% endif %}
{{- (call.function | tojson)[:-1] + ', "id": "' + call.id + '"}' + (']</s>' if loop.last else ', ') }}
{%- endfor %}
{%- elif m.role == 'tool' %}
{%- if m.tool_call_id | length != 9 %}{{ raise_exception("ids have nine characters") }}{% endif %}
{{- '[TOOL_RESULTS] {"content": ' + m.content + ', "call_id": "' + m.tool_call_id + '"}' }}
{%- else %}{{ m.content + '</s>' }}{% endif %}
{%- endfor %}"""

MISTRAL_NAMED = """{% for m in messages %}
{%- if m.role == 'user' %}{% if tools %}[AVAILABLE_TOOLS]{% endif %}[INST]{{ m.content }}[/INST]
{%- elif m.tool_calls %}{{ m.content or '' }}
{%- for call in m.tool_calls %}
{%- set given = call.function.arguments %}
{{- '[TOOL_CALLS]' + call.function.name + '[ARGS]' + (given if given is string else given | tojson) }}
{%- endfor %}</s>
{%- else %}{{ m.content }}{% endif %}
{%- endfor %}"""

PHI = """{% for message in messages %}
{%- if message['role'] == 'system' and 'tools' in message and message['tools'] is not none %}
{{- '<|system|>' + message['content'] + '<|tool|>' + message['tools'] + '<|/tool|>' }}
{%- else %}{{ '<|' + message['role'] + '|>' + message['content'] }}{% endif %}
{%- endfor %}"""

GRANITE = """{% if tools and not available_tools %}{% set available_tools = tools %}{% endif %}
{%- if available_tools %}Answer with <|tool_call|> and a list. {{ available_tools | tojson(indent=1) }}{% endif %}
{%- for m in messages %}{{ '[' + m['role'] + ']' + m['content'] }}{% endfor %}"""

SMOLLM3 = """{% if xml_tools or python_tools %}<tools>{% for tool in xml_tools %}{{ tool | string }}{% endfor %}</tools>
Write calls between <tool_call></tool_call>.{% endif %}
{%- for m in messages %}
{%- set content = m.content if m.content is string else "" %}
{%- if m.role == "tool" %}{{ "[user]" + content }}{% else %}{{ "[" + m.role + "]" + content.lstrip() }}{% endif %}
{%- endfor %}"""

QWEN3 = """{% if tools %}<tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools>
Write calls between <tool_call></tool_call>.{% endif %}
{%- for m in messages %}
{%- if m.role == "tool" %}{{ "<tool_response>" + m.content + "</tool_response>" }}
{%- else %}{{ "[" + m.role + "]" + m.content }}{% endif %}
{%- for call in m.tool_calls or [] %}
{{- '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{%- if call.function.arguments is string %}{{ call.function.arguments }}
{%- else %}{{ call.function.arguments | tojson }}{% endif %}
{{- '}\\n</tool_call>' }}
{%- endfor %}
{%- endfor %}
{%- if enable_thinking is false %}<think></think>{% endif %}"""

GEMMA = """{% set first = messages[0].content + '\n\n' if messages[0].role == 'system' else '' %}
{%- set rest = messages[1:] if messages[0].role == 'system' else messages %}
{%- for m in rest %}
{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception("roles must alternate") }}{% endif %}
{{- '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' + (first if loop.first else '') }}
{{- m.content | trim }}
{%- endfor %}"""


QWEN3_CODER = """{% if tools %}<tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools>
Write <tool_call> around <function=name>.{% endif %}
{%- for m in messages %}{{ '[' + m.role + ']' + m.content }}
{%- for call in m.tool_calls or [] %}{{ '<tool_call>\\n<function=' + call.function.name + '>\\n' }}
{%- for name, value in call.function.arguments.items() %}
{{- '<parameter=' + name + '>\\n' + value | string + '\\n</parameter>\\n' }}
{%- endfor %}</function>\n</tool_call>
{%- endfor %}
{%- endfor %}"""

DEEPSEEK = """{% for m in messages %}
{%- if m['role'] == 'assistant' and m['content'] is none %}<｜Assistant｜><｜tool▁calls▁begin｜>
{%- for call in m['tool_calls'] %}{{ '\\n' if not loop.first }}
{{- '<｜tool▁call▁begin｜>' + call['type'] + '<｜tool▁sep｜>' + call['function']['name'] + '\\n```json\\n' }}
{{- call['function']['arguments'] + '\\n```<｜tool▁call▁end｜>' }}
{%- endfor %}{{ '<｜tool▁calls▁end｜>' }}
{%- else %}{{ '[' + m['role'] + ']' + m['content'] }}{% endif %}
{%- endfor %}[assistant]"""


@dataclass(frozen=True, slots=True)
class Family:
    """`calls` is the rendering of two calls of `f` in its conversations, `results` that of their results."""

    template: str
    marks: tuple[str, ...]
    calls: str
    results: str


X1, X2 = '{"x": 1}', '{"x": 2}'
FUNCTION = "<tool_call>\n<function=f>\n<parameter=x>\n{}\n</parameter>\n</function>\n</tool_call>"
FENCE = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```<｜tool▁call▁end｜>"
CALLS = "<tool_call>\n{}\n</tool_call>"
ARGUED = '{{"name": "f", "arguments": {}}}'
LISTED = ", ".join(ARGUED.format(one) for one in (X1, X2))
TAGGED = "\n".join(CALLS.format(ARGUED.format(one)) for one in (X1, X2))
FAMILIES = {
    "llama": Family(
        LLAMA,
        ("<|python_tag|>",),
        '[assistant]{"name": "f", "parameters": {"x": 1}}</s>[ipython]"one"</s>[assistant]{"name": "f", "parameters": ',
        '[ipython]"two"</s>',
    ),
    "mistral": Family(
        MISTRAL, ("[TOOL_CALLS]",), '[TOOL_CALLS] [{"name": "f", "arguments": {"x": 1}, "id": "', "[TOOL_RESULTS]"
    ),
    "mistral-named": Family(
        MISTRAL_NAMED, ("[TOOL_CALLS]", "[ARGS]"), f"[TOOL_CALLS]f[ARGS]{X1}[TOOL_CALLS]f[ARGS]{X2}</s>", "onetwo"
    ),
    "phi": Family(
        PHI,
        ("<|tool_call|>", "<|/tool_call|>"),
        f"<|assistant|><|tool_call|>[{LISTED}]<|/tool_call|>",
        "<|tool|>one<|tool|>two",
    ),
    "granite": Family(GRANITE, ("<|tool_call|>",), f"[assistant]<|tool_call|>[{LISTED}]", "[tool]one[tool]two"),
    "smollm3": Family(SMOLLM3, ("<tool_call>", "</tool_call>"), f"[assistant]{TAGGED}", "[user]one[user]two"),
    "qwen3": Family(
        QWEN3,
        ("<tool_call>", "</tool_call>", "<think>", "</think>"),
        f"[assistant]\n{TAGGED}",
        "<tool_response>one</tool_response>",
    ),
    "qwen3-coder": Family(
        QWEN3_CODER, ("<tool_call>", "</tool_call>"), "".join(map(FUNCTION.format, (1, 2))), "[tool]one[tool]two"
    ),
    "deepseek": Family(
        DEEPSEEK,
        (
            "<｜tool▁calls▁begin｜>",
            "<｜tool▁call▁begin｜>",
            "<｜tool▁sep｜>",
            "<｜tool▁call▁end｜>",
            "<｜tool▁calls▁end｜>",
        ),
        "<｜tool▁calls▁begin｜>" + "\n".join(map(FENCE.format, (X1, X2))) + "<｜tool▁calls▁end｜>",
        "[user]<tool_response>\none\n</tool_response>\n<tool_response>\ntwo\n</tool_response>\nAnd?",
    ),
    "gemma": Family(
        GEMMA,
        (),
        '<start_of_turn>model\n{"name": "f", "parameters": {"x": 1}}; {"name": "f", "parameters": {"x": 2}}',
        "<start_of_turn>user\n<tool_response>\none\n</tool_response>\n<tool_response>\ntwo\n</tool_response>\nAnd?",
    ),
}


def tokenizer_of(family: Family) -> Tokenizer:
    """A token per byte, plus the family's marks: those in plain brackets are special, as in their files."""
    fast = byte_level()
    for mark in family.marks:
        is_special = "tool_call>" not in mark and "think" not in mark
        (fast.add_special_tokens if is_special else fast.add_tokens)([AddedToken(mark, special=is_special)])
    return Tokenizer(fast, chat_template=family.template, bos_token_id=None, eos_token_ids=[257])
