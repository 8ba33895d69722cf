"""What came, as the decision needs to see it: JSON for models that write, JSON or a form for all others."""

from backends.protocol import is_media
from gateway.request.content_view import CONTENT_OPERATIONS, view_content
from gateway.request.media_views import view_media
from gateway.request.run import Incoming
from gateway.request.view import RequestView, parse_request


def view_of(incoming: Incoming) -> RequestView:
    """Raises InvalidRequest naming the field that is wrong."""
    operation = incoming.operation
    if is_media(operation):
        return view_media(operation, incoming.body, incoming.content_type)
    if operation in CONTENT_OPERATIONS:
        return view_content(incoming)
    return parse_request(operation, incoming.body)
