"""Every table of the database, once. Imports SQLAlchemy alone; migrations/ must add up to exactly this.

Money is integer pico-USD, times are microseconds since the Unix epoch (UTC), hours are whole hours since it.
"""

from gateway.storage.tables import administration, books, content
from gateway.storage.tables.naming import metadata

__all__ = ["administration", "books", "content", "metadata"]
