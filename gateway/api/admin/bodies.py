"""`/admin/v1/bodies/{id}`: the stored prompt and answer of one request, for keys that opted in. Reading is audited."""

from fastapi import APIRouter
from pydantic import BaseModel

from gateway.api.admin.guard import Caller, needs
from gateway.errors import NotFound
from gateway.kept_answers.body_keeper import BodyReader


class StoredBodies(BaseModel):
    """What the caller sent and received, as on the wire; bytes that are not UTF-8 are replaced."""

    request_id: str
    key_id: str
    request: str
    answer: str


def build_bodies_router(bodies: BodyReader) -> APIRouter:
    """The path `/bodies/{request_id}`."""
    router = APIRouter(tags=["admin: entries"])

    @router.get("/bodies/{request_id}", openapi_extra=needs("bodies.read"))
    async def get(request_id: str, caller: Caller) -> StoredBodies:
        """The stored prompt and answer of one request."""
        return await read_bodies(bodies, request_id, reader=caller.name)

    return router


async def read_bodies(bodies: BodyReader, request_id: str, *, reader: str) -> StoredBodies:
    """Raises NotFound with the possible reasons."""
    found = await bodies.read(request_id, reader=reader)
    if found is None:
        raise NotFound(
            f"No text of request {request_id[:64]!r} is stored. Texts are stored only for keys created with "
            "`--keep-bodies`, once the answer is complete, until retention deletes them.",
            code="bodies_not_found",
        )
    return StoredBodies(
        request_id=found.request_id,
        key_id=found.key_id,
        request=found.request.decode("utf-8", "replace"),
        answer=found.answer.decode("utf-8", "replace"),
    )
