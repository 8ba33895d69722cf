"""All tables of the database. Imports only SQLAlchemy; the migrations must result in exactly this schema.

Money is integer pico-USD, times are microseconds since the Unix epoch (UTC), hours are whole hours since it.
"""

from gateway.storage.tables import administration, books, content
from gateway.storage.tables.naming import metadata

__all__ = ["administration", "books", "content", "metadata"]
