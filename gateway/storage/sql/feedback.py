"""Feedback on answers, and shadow calls; see gateway.stores.FeedbackStore."""

from collections.abc import Sequence
from typing import cast

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.economics.replay.outcome import ShadowPair
from gateway.storage.database import FEEDBACK_LOCK, lock, writing
from gateway.storage.rows.interned import insert_or_ignore
from gateway.storage.tables.books import circumstances, dimensions, entries
from gateway.storage.tables.content import feedback, shadow_calls
from gateway.stores import Feedback, FeedbackKind, FeedbackSource, ShadowCall


class SqlFeedback:
    """One row per judgement."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def add(self, batch: Sequence[Feedback]) -> None:
        rows = [
            {
                "request_id": bytes.fromhex(one.request_id),
                "key_id": one.key_id,
                "at_us": one.at_us,
                "kind": one.kind,
                "score": one.score,
                "source": one.source,
                "comment": one.comment,
            }
            for one in batch
        ]
        if rows:
            async with writing(self._engine) as connection:
                # Ids are given before the commit: a reader may be past one that is committed later.
                await lock(connection, FEEDBACK_LOCK)
                await connection.execute(feedback.insert(), rows)

    async def newest(self) -> int:
        async with self._engine.connect() as connection:
            return (await connection.execute(select(func.max(feedback.c.id)))).scalar() or 0

    async def after(self, number: int, *, limit: int = 1000) -> Sequence[Feedback]:
        query = select(feedback).where(feedback.c.id > number).order_by(feedback.c.id).limit(limit)
        async with self._engine.connect() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [
            Feedback(
                request_id=bytes(row["request_id"]).hex(),
                at_us=row["at_us"],
                kind=cast("FeedbackKind", row["kind"]),
                score=row["score"],
                source=cast("FeedbackSource", row["source"]),
                key_id=row["key_id"],
                comment=row["comment"],
                number=row["id"],
            )
            for row in rows
        ]

    async def add_shadow(self, call: ShadowCall) -> None:
        row = {
            "request_id": bytes.fromhex(call.request_id),
            "of_request_id": bytes.fromhex(call.of_request_id),
            "at_us": call.at_us,
            "propensity": call.propensity,
        }
        async with writing(self._engine) as connection:
            await connection.execute(insert_or_ignore(connection.dialect, shadow_calls).values(**row))

    async def shadows(self, since_us: int, until_us: int) -> Sequence[ShadowCall]:
        period = (shadow_calls.c.at_us >= since_us, shadow_calls.c.at_us < until_us)
        query = select(shadow_calls).where(*period).order_by(shadow_calls.c.at_us, shadow_calls.c.request_id)
        async with self._engine.connect() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [
            ShadowCall(
                request_id=bytes(row["request_id"]).hex(),
                of_request_id=bytes(row["of_request_id"]).hex(),
                at_us=row["at_us"],
                propensity=row["propensity"],
            )
            for row in rows
        ]

    async def shadow_pairs(self, since_us: int, until_us: int) -> Sequence[ShadowPair]:
        again, shown = entries.alias("again"), entries.alias("shown")
        of_call = {again: shadow_calls.c.request_id, shown: shadow_calls.c.of_request_id}
        names: list[ColumnElement[str]] = []
        query = select(func.count()).select_from(shadow_calls)
        for entry, request_id in of_call.items():
            dimension, circumstance = dimensions.alias(), circumstances.alias()
            query = (
                query.join(entry, entry.c.request_id == request_id)
                .join(dimension, dimension.c.id == entry.c.dimension_id)
                .join(circumstance, circumstance.c.id == entry.c.circumstance_id)
                .where(dimension.c.status == "completed", circumstance.c.is_usage_estimated.is_(False))
                .where(circumstance.c.finish_reason != "length")
            )
            names.append(dimension.c.model)
        tokens = [func.sum(entry.c[name]) for entry in (shown, again) for name in ("input_tokens", "output_tokens")]
        query = query.add_columns(*names, *tokens).group_by(*names)
        query = query.where(shadow_calls.c.at_us >= since_us, shadow_calls.c.at_us < until_us)
        async with self._engine.connect() as connection:
            rows = (await connection.execute(query)).all()
        return [ShadowPair(model, reference, *map(int, (count, *sums))) for count, model, reference, *sums in rows]
