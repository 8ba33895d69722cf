"""Bodies of chats and messages, whole and streamed."""

import json


def answer(text: str) -> bytes:
    return json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]}).encode()


def streamed(*pieces: str) -> bytes:
    events = [json.dumps({"choices": [{"delta": {"content": piece}}]}) for piece in pieces]
    return "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"]).encode()


def message(*texts: str) -> bytes:
    return json.dumps({"type": "message", "content": [{"type": "text", "text": text} for text in texts]}).encode()


def message_stream(*pieces: str, kind: str = "text") -> bytes:
    start = {"type": "content_block_start", "content_block": {"type": kind, "text": ""}}
    deltas = [{"type": "content_block_delta", "delta": {"type": "text_delta", "text": piece}} for piece in pieces]
    events = [start, *deltas, {"type": "message_stop"}]
    return "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events).encode()
