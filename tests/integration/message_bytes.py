"""A request and its answers in Anthropic's and OpenAI's formats, with what a program would not write."""

ASKED = b"""{ "model" : "a" ,
  "max_tokens":2048, "temperature":1.0, "x-unknown" : {"y":1.50, "z":[1e3]}, "service_tier":"standard_only",
  "thinking":{"type":"enabled","budget_tokens":1024},
  "system":[{"type":"text","text":"be brief \\u00e9","cache_control":{"type":"ephemeral","ttl":"1h"}}],
  "tools":[{"type":"web_search_20250305","name":"web_search","max_uses":2},
           {"name":"f","input_schema":{"type":"object"},"cache_control":{"type":"ephemeral"}}],
  "messages":[{"role":"user","content":[{"type":"document","source":{"type":"url","url":"https://x/y.pdf"}}]},
    {"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"EqQBCg=="},
      {"type":"redacted_thinking","data":"zzz"},
      {"type":"server_tool_use","id":"srv_1","name":"web_search","input":{"query":"q"}},
      {"type":"web_search_tool_result","tool_use_id":"srv_1","content":{"type":"web_search_tool_result_error",
        "error_code":"max_uses_exceeded"}},
      {"type":"tool_use","id":"t1","name":"f","input":{}}]},
    {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"one"}]}]
}"""
USAGE = (
    b'{"input_tokens":7,"cache_creation_input_tokens":300,"cache_read_input_tokens":50,"cache_creation":'
    b'{"ephemeral_5m_input_tokens":100,"ephemeral_1h_input_tokens":200},"output_tokens":40,"service_tier":"standard",'
    b'"server_tool_use":{"web_search_requests":1}}'
)
ANSWER = (
    b'{"id":"msg_01", "type":"message","role":"assistant","model":"claude-x","content":[{"type":"thinking","thinking":'
    b'"hm","signature":"Eq=="},{"type":"text","text":"h\\u00e9","citations":[{"type":"web_search_result_location"}]}],'
    b'"stop_reason":"pause_turn","stop_sequence":null,"container":null,"usage":' + USAGE + b"}\n"
)
EVENTS: list[tuple[str, bytes]] = [
    (
        "message_start",
        b'{"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-x",'
        b'"content":[],"stop_reason":null,"stop_sequence":null,"usage":' + USAGE.replace(b":40", b":1") + b"} }",
    ),
    (
        "content_block_start",
        b'{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}',
    ),
    ("ping", b'{"type": "ping"}'),
    (
        "content_block_delta",
        b'{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}   }',
    ),
    (
        "content_block_delta",
        b'{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"Eq=="}}',
    ),
    ("content_block_stop", b'{"type":"content_block_stop","index":0}'),
    (
        "content_block_start",
        b'{"type":"content_block_start","index":1,"content_block":{"type":"server_tool_use","id":"s","name":"web_search",'
        b'"input":{}}}',
    ),
    (
        "content_block_delta",
        b'{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\\"q\\""}}',
    ),
    ("content_block_stop", b'{"type":"content_block_stop","index":1}'),
    ("an-event.to_come", b'{"type":"an-event.to_come","x":1.0}'),
    (
        "message_delta",
        b'{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":40}}',
    ),
    ("message_stop", b'{"type":"message_stop"}'),
]
STREAM = b"".join(b"event: " + name.encode() + b"\ndata: " + data + b"\n\n" for name, data in EVENTS)
RESPONDED = (
    b'{"id":"resp_1","object":"response","status":"completed","output":[{"type":"reasoning","encrypted_content":"zz"},'
    b'{"type":"message","content":[{"type":"output_text","text":"x","annotations":[]}]}],"x":1.50}'
)
