"""Chooses the view of a request for the decision: JSON for models that write text, JSON or a form for others."""

from backends.protocol import is_media
from gateway.request.bodies import DECODERS
from gateway.request.content_view import view_content
from gateway.request.media_views import view_media
from gateway.request.run import Incoming
from gateway.request.view import RequestView, parse_request


def view_of(incoming: Incoming) -> RequestView:
    """Raises InvalidRequest naming the invalid field."""
    operation = incoming.operation
    if operation in DECODERS:
        return parse_request(operation, incoming.body)
    if is_media(operation):
        return view_media(operation, incoming.body, incoming.content_type)
    return view_content(incoming)
