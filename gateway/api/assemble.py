"""Assembles the HTTP application of one gateway: routers and middleware."""

import logging
import os
from collections.abc import Sequence
from typing import Any, cast

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Scope
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from gateway.access.keys import KeyRecord
from gateway.api.admin.entries import build_own_requests_router
from gateway.api.admin.router import PREFIX
from gateway.api.admin.wiring import build_admin
from gateway.api.app import Root, build_fastapi
from gateway.api.batches import build_batches_router
from gateway.api.body_bounds import build_bound
from gateway.api.conversations import build_conversations_router
from gateway.api.feedback import build_feedback_router
from gateway.api.files import build_files_router
from gateway.api.message_batches import build_message_batches_router
from gateway.api.new_keys import NewKeys
from gateway.api.other_addresses import OtherAddresses
from gateway.api.own_key import build_own_key_router
from gateway.api.public import build_public_router
from gateway.api.shedding import Load, Shedding
from gateway.api.sockets import ResponseSockets, SocketLimits, takes_socket
from gateway.api.stored_responses import build_stored_responses_router
from gateway.api.token_path import credential_of
from gateway.api.under_way import UnderWay
from gateway.api.way_to_web_ui import build_way_to_web_ui
from gateway.composition.batches import bounds_of
from gateway.composition.running import Gateway
from gateway.config.settings import ServerSettings
from gateway.kept_answers.socket_turns import SocketTurns
from gateway.process.open_files import calls_within, open_files
from gateway.process.socket_protocol import Sockets

log = logging.getLogger(__name__)
MEGABYTE = 1 << 20


def build_app(gateway: Gateway, *, ui_url: str | None = None) -> ASGIApp:
    """`ui_url` is where `/ui` and `/` redirect a browser to."""
    rest = build_fastapi()
    rest.include_router(build_public_router(gateway.pipeline, gateway.exposition, gateway.problems, gateway.warnings))
    rest.include_router(build_stored_responses_router(gateway.pipeline))
    if gateway.pipeline.kept_conversations is not None:
        rest.include_router(build_conversations_router(gateway.pipeline, gateway.pipeline.kept_conversations))
    stores, batches, batch_bounds = gateway.stores, gateway.batches, bounds_of(gateway.deployment.settings)
    rest.include_router(build_files_router(gateway.pipeline, stores.files, batch_bounds))
    wake = batches.wake if batches is not None else _nobody_to_wake
    for build in (build_batches_router, build_message_batches_router):
        rest.include_router(build(gateway.pipeline, stores.files, stores.batches, batch_bounds, wake))
    rest.include_router(build_feedback_router(gateway.pipeline, gateway.stores.entries, gateway.stores.feedback))
    rest.include_router(build_admin(gateway), prefix=PREFIX)
    keys, now_us = gateway.pipeline.keys, lambda: gateway.pipeline.now_us()
    rest.include_router(build_own_requests_router(gateway.stores.entries, keys, now_us))
    rest.include_router(build_own_key_router(gateway.pipeline, stores.reports, stores.openings.of, stores.end_users))
    settings, sign_in = gateway.deployment.settings.server, gateway.deployment.settings.sign_in
    if ui_url is not None:
        rest.include_router(build_way_to_web_ui(ui_url, sign_in.oidc.public_url if sign_in.oidc else None))
    pipeline, longest = gateway.pipeline, settings.max_body_megabytes * MEGABYTE
    load = Load()
    root = Root(
        pipeline,
        behind_proxy(rest, os.environ.get("FORWARDED_ALLOW_IPS", "127.0.0.1")),
        max_body_bytes=longest,
        idempotency=gateway.idempotency,
        load=load,
    )
    gateway.metrics.watch("requests_in_flight", "Model calls in progress.", lambda: load.requests)
    gateway.metrics.watch("buffered_bytes", "Bytes of the bodies of calls in progress.", lambda: load.buffered_bytes)
    if batches is not None:
        gateway.metrics.watch("batches_in_flight", "Batches in progress.", lambda: batches.batches_under_way)
        gateway.metrics.watch("batch_lines_in_flight", "Batch lines in progress.", lambda: batches.lines_under_way)
    gateway.metrics.watch("shed_requests", "Requests refused because too many were in progress.", lambda: load.shed)

    def key_of(scope: Scope) -> KeyRecord:
        return keys.authenticate(credential_of(scope["headers"]), now_us())

    most = _most_requests(settings.max_requests_in_flight, open_files())
    app: ASGIApp = Shedding(
        UnderWay(root, pipeline.admission, key_of),
        load,
        build_bound(keys, now_us, longest, batch_bounds.most_file_bytes),
        whose=lambda scope: key_of(scope).id,
        max_requests=most,
        max_buffered_bytes=settings.max_buffered_megabytes * MEGABYTE,
    )
    root.sockets = sockets = ResponseSockets(
        app,
        load,
        SocketLimits(most, settings.max_buffered_megabytes * MEGABYTE),
        SocketTurns(max_bytes=gateway.deployment.settings.kept_answers.memory_megabytes * MEGABYTE),
        key_of=key_of,
        admit=lambda key: pipeline.admission.admit(key.id, team=key.team, tokens=0),
    )
    gateway.metrics.watch("sockets_open", "WebSockets open at /v1/responses.", lambda: sockets.open)
    app = OtherAddresses(NewKeys(app, keys, gateway.watch.catch_up))
    return for_browsers(app, settings.allowed_origins) if settings.allowed_origins else app


def sockets_of(settings: ServerSettings) -> Sockets:
    """Where the server of `build_app` takes WebSockets."""
    return Sockets(
        takes_socket,
        largest_bytes=settings.max_body_megabytes * MEGABYTE,
        most_arriving_bytes=settings.max_buffered_megabytes * MEGABYTE,
    )


def _nobody_to_wake() -> None:
    """Used where batches are disabled."""


def _most_requests(wanted: int, files: int) -> int:
    """With too few open files, a call would fail halfway, and the provider would be blamed."""
    possible = calls_within(files)
    if possible < wanted:
        log.warning(
            "this process may open %d files, enough for %d calls at a time and not for server.max_requests_in_flight "
            "(%d); raise the limit (ulimit -Hn, systemd's LimitNOFILE)", files, possible, wanted,
        )  # fmt: skip
    return min(wanted, possible)


def behind_proxy(app: ASGIApp, trusted: str) -> ASGIApp:
    """Believes the forwarded caller and scheme from `trusted` addresses (comma-separated; networks too, or `*`)."""
    middleware = ProxyHeadersMiddleware(cast(Any, app), trusted)  # its types are uvicorn's own
    return cast(ASGIApp, middleware)


def for_browsers(app: ASGIApp, origins: Sequence[str]) -> ASGIApp:
    """CORS: pages of these origins may send and read any header. Keys travel in headers, so no cookies are accepted.

    Private network access is allowed too, since the origins were listed for that purpose.
    """
    methods = ("GET", "POST", "PUT", "PATCH", "DELETE")
    return CORSMiddleware(
        app, origins, methods, allow_headers=("*",), expose_headers=("*",), allow_private_network=True
    )
