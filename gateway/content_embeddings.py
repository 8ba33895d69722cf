"""Answers Gemini's embedding calls through the pipeline, which routes, reserves and books them as it does OpenAI's."""

import msgspec

from backends.endpoints.content_embeddings import embedding_body
from backends.errors import UpstreamRejected
from backends.formats.json_objects import decode_object, part_of, text_of
from gateway.access.keys import require_model_access
from gateway.errors import InvalidRequest
from gateway.pipeline import Pipeline
from gateway.request.many_values import require_bearable
from gateway.request.run import Caller, Incoming


class ContentEmbeddings:
    """A single text or a batch; implements gateway.api.token_path.Answers. The caller object translates the
    response."""

    def __init__(self, pipeline: Pipeline, *, is_batch: bool) -> None:
        self._pipeline = pipeline
        self._is_batch = is_batch

    async def answer(self, incoming: Incoming, caller: Caller) -> None:
        """Raises RequestError. The body is parsed only after the key has been authenticated."""
        key = self._pipeline.keys.authenticate(incoming.credential, self._pipeline.now_us())
        require_model_access(key)
        asked = msgspec.structs.replace(incoming, body=self._body(incoming))
        await self._pipeline.answer(asked, caller, key)

    def _body(self, incoming: Incoming) -> bytes:
        require_bearable(incoming.body)
        try:
            return embedding_body(incoming.body, model=incoming.model, is_batch=self._is_batch)
        except UpstreamRejected as error:
            field = text_of(part_of(decode_object(error.body) or {}, "error"), "param")
            raise InvalidRequest(f"{error.message}.", param=field) from error
