"""What every target begins with: answers, streams and bodies as they are on the wire."""

import gzip

from tests.integration.message_bytes import ANSWER, ASKED, RESPONDED, STREAM
from tests.scripted_provider.malformed import variants

LARGEST_SEED = 4096
CHAT = (
    b'{"model":"auto","messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"hi"},'
    b'{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}}]},{"role":"assistant","tool_calls":'
    b'[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c",'
    b'"content":"one"}],"stream":true,"max_tokens":5,"n":1,"stop":["x"],"tools":[{"type":"function","function":'
    b'{"name":"f","parameters":{"type":"object"}}}],"tool_choice":"required","response_format":{"type":"json_schema",'
    b'"json_schema":{"name":"a","schema":{}}}}'
)
THINKING_CHAT = CHAT.replace(b',"stop":["x"]', b"").replace(
    b'"tool_calls":[{', b'"reasoning_details":[{"data":"breakeven:fuzz:x","index":0}],"tool_calls":[{', 1
)
RESPONSES = (
    b'{"model":"auto","instructions":"s","input":[{"role":"user","content":[{"type":"input_text","text":"hi"}]},'
    b'{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c",'
    b'"output":"one"}],"tools":[{"type":"function","name":"f","parameters":{}}],"text":{"format":{"type":"json_object"}}}'
)
CONTENT = (
    b'{"contents":[{"role":"user","parts":[{"text":"hi"},{"inlineData":{"mimeType":"image/png","data":"iVBORw0KGgo="}}]},'
    b'{"role":"model","parts":[{"functionCall":{"name":"f","args":{}},"thoughtSignature":"s"}]},{"role":"user","parts":'
    b'[{"functionResponse":{"name":"f","response":{"result":1}}}]}],"system_instruction":{"parts":[{"text":"s"}]},'
    b'"tools":[{"functionDeclarations":[{"name":"f","parameters":{"type":"OBJECT","properties":{"a":{"type":"STRING"}}}}]}],'
    b'"generationConfig":{"maxOutputTokens":"5","responseMimeType":"application/json","responseSchema":{"type":"ARRAY"}}}'
)
GEMINI_EVENTS = (
    b'data: {"candidates":[{"content":{"role":"model","parts":[{"text":"hm","thought":true},{"text":"hi"},'
    b'{"functionCall":{"name":"f","args":{"a":1}},"thoughtSignature":"s"}]},"finishReason":"STOP","index":0}],'
    b'"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":2,"thoughtsTokenCount":1,"totalTokenCount":6},'
    b'"modelVersion":"g","responseId":"r"}\r\n\r\n'
)
RESPONSES_EVENTS = (
    b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":"x"}\n\n'
    b'event: response.completed\ndata: {"type":"response.completed","response":' + RESPONDED + b"}\n\n"
)
CALLING_EVENTS = (
    b'data: {"type":"response.output_item.done","output_index":0,'
    b'"item":{"type":"reasoning","encrypted_content":"x"}}\n\n'
    b'data: {"type":"response.output_item.added","output_index":1,'
    b'"item":{"type":"function_call","call_id":"c","name":"f"}}\n\n'
    b'data: {"type":"response.function_call_arguments.delta","output_index":1,"delta":"{}"}\n\n'
    b'data: {"type":"response.completed","response":{"status":"completed","created_at":1.5}}\n\n'
)
CHAT_STREAMS = [b"".join(variant.pieces) for variant in variants() if sum(map(len, variant.pieces)) < LARGEST_SEED]
MEDIA_EVENTS = (
    b'event: image_edit.partial_image\ndata: {"type":"image_edit.partial_image","b64_json":"AA=="}\n\n'
    b'data: {"type":"speech.audio.delta","audio":"SUQz"}\n\ndata: {"type":"transcript.text.done","usage":'
    b'{"type":"tokens","input_tokens":14,"input_token_details":{"audio_tokens":10},"output_tokens":5}}\n\n'
)
STREAMS = [*CHAT_STREAMS, MEDIA_EVENTS, STREAM, GEMINI_EVENTS, RESPONSES_EVENTS, CALLING_EVENTS]
ANSWERS = [
    ANSWER,
    RESPONDED,
    GEMINI_EVENTS.removeprefix(b"data: ").strip(),
    b'{"error":{"message":"no","code":"x"}}',
    b'{"created":1,"data":[{"b64_json":"AA=="}],"usage":{"input_tokens":3,"output_tokens":4}}',
    b'{"text":"said","duration":"3.5","usage":{"type":"duration","seconds":4}}',
    b"1\n00:00:00,000 --> 00:01:02,003\nsaid\n",
]
BODIES = [
    CHAT,
    CONTENT,
    THINKING_CHAT,
    ASKED,
    RESPONSES,
    b'{"model":"m","prompt":["x",1,[2]]}',
    b'{"model":"m","input":["x",[1]]}',
    b'{"prompt":"a cat","n":2,"quality":"low","images":[{"image_url":"x"}]}',
]
FORM_TYPE = "multipart/form-data; boundary=x"
FORMS = [
    b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\nauto\r\n--x\r\nContent-Disposition: form-data; '
    b'name="file"; filename="a.wav"\r\nContent-Type: audio/wav\r\n\r\nRIFF\x24\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40'
    b"\x1f\0\0\x40\x1f\0\0\x01\0\x08\0data\0\0\0\0\r\n--x--\r\n",
    b'--x\r\nContent-Disposition: form-data; name="image[]"; filename="a"\r\n\r\npng\r\n--x\r\nContent-Disposition: '
    b'form-data; name="prompt"\r\n\r\n\r\n--x--',
]
_OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
_ZIPPED = gzip.compress(b'{"a":1}', mtime=0)
HTTP = [
    _OK + b'content-length: 7\r\n\r\n{"a":1}',
    _OK + b'transfer-encoding: chunked\r\n\r\n3\r\n{"a\r\n4;x=y\r\n":1}\r\n0\r\nx-trailer: 1\r\n\r\n',
    _OK + b'connection: close\r\n\r\n{"a":1}',
    _OK + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n%b" % (len(_ZIPPED), _ZIPPED),
    b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + _OK + b"content-length: 0\r\n\r\n",
    b"HTTP/1.0 429 Slow\nretry-after: 1\n\nno",
    _OK + b"content-length: 1\r\n\r\nxHTTP/1.1 200 OK\r\n\r\n",
]
