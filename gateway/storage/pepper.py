"""Whether a home has the pepper that the keys of its database were made with; with another one it would know none."""

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.config.home import Home
from gateway.errors import StateError
from gateway.storage.tables import api_keys


async def require_pepper(database: AsyncEngine, home: Home) -> None:
    """A pepper is made where there is no key yet. Raises StateError where there are some, and none of it here."""
    if home.has_pepper or not await _has_keys(database):
        return
    if home.has_pepper:  # whoever made the first keys a moment ago made it before them
        return
    file = home.pepper_file
    raise StateError(
        f"{file} is not there, and the API keys of this database were made with it: restore it from a backup, or set "
        "BREAKEVEN_PEPPER to what the home has that made them. If it is lost for good, every key has to be made anew: "
        f"`openssl rand -hex 32 > {file}`, then `breakeven keys create`"
    )


async def _has_keys(database: AsyncEngine) -> bool:
    async with database.connect() as connection:
        return (await connection.execute(select(api_keys.c.id).limit(1))).first() is not None
