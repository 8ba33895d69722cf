"""Translates Gemini's embedContent and batchEmbedContents to OpenAI's embeddings and back. Pure."""

from collections.abc import Iterator

import msgspec

from backends.formats.chat_fields import invalid, list_of, object_of, parse_object
from backends.formats.json_objects import Fields, decode_object, number, objects_of, part_of, text_of
from backends.formats.proto_json import NamedTwice, many_of, member_of, members_of, whole_number


def embedding_body(body: bytes, *, model: str, is_batch: bool) -> bytes:
    """The equivalent OpenAI body, without `taskType` and `title`, which that format lacks.
    Raises UpstreamRejected, naming the field."""
    fields = parse_object(body)
    try:
        asked = members_of(fields)
        requests = list_of(many_of(asked.get("requests")), "requests") if is_batch else [asked]
        if not requests:
            raise invalid("requests", "needs at least one")
        read = [members_of(object_of(one, "requests")) for one in requests]
        texts = ["\n".join(_texts(one, f"requests[{place}]")) for place, one in enumerate(read)]
        lengths = {whole_number(_dimensions(one)) for one in read}
    except NamedTwice as error:
        raise invalid("body", str(error)) from error
    if len(lengths) > 1:
        raise invalid(
            "requests.outputDimensionality", "must be the same in all requests; send different ones separately"
        )
    chat: Fields = {"model": model, "input": texts if is_batch else texts[0]}
    [dimensions] = lengths
    return msgspec.json.encode(chat | ({} if dimensions is None else {"dimensions": dimensions}))


def embeddings_from_answer(body: bytes, *, is_batch: bool) -> bytes:
    """OpenAI's answer in Gemini's format."""
    document = decode_object(body) or {}
    rows = sorted(objects_of(document.get("data")), key=lambda row: number(row, "index") or 0)
    made: list[Fields] = [{"values": row.get("embedding")} for row in rows]
    said: Fields = {"embeddings": made} if is_batch else {"embedding": made[0] if made else {}}
    counted = number(part_of(document, "usage"), "prompt_tokens")
    return msgspec.json.encode(said | ({} if counted is None else {"usageMetadata": {"promptTokenCount": counted}}))


def _dimensions(asked: Fields) -> object:
    """Newer clients put it in `embedContentConfig`."""
    return asked.get("outputDimensionality") or member_of(asked, "embedContentConfig").get("outputDimensionality")


def _texts(asked: Fields, where: str) -> Iterator[str]:
    for item in list_of(many_of(member_of(asked, "content").get("parts")), f"{where}.content.parts"):
        text = text_of(members_of(object_of(item, f"{where}.content.parts")), "text")
        if text is None:
            raise invalid(f"{where}.content.parts", "only text can be embedded here")
        yield text
