"""Alembic migrations; they import only gateway.storage.tables."""
