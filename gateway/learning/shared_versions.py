"""One classifier for all replicas: what is chosen or learned at one of them reaches the homes of the others through the
database. Knows the store's protocol only.

The database decides. A home keeps copies, and what it alone had before anything was shared is shared by the first to
come.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from gateway.clock import now_us
from gateway.errors import StateError
from gateway.learning.classifier_versions import SHIPPED, Active, ClassifierVersions
from gateway.stores import ClassifierChoice, ClassifierStore

KEPT_ARTEFACTS = 5
"""How many of those last in force the database keeps; each has over 4 MB, which every backup copies. Homes keep all."""


class SharedVersions:
    """`versions` is this home's copy. Methods raise StateError, and DatabaseDown."""

    def __init__(self, versions: ClassifierVersions, store: ClassifierStore) -> None:
        self._versions = versions
        self._store = store
        self._seen = 0

    async def follow(self) -> bool:
        """Takes over what was chosen or learned elsewhere; whether another classifier is in force now."""
        newest = await self._store.newest()
        if not newest:
            self._seen = 0  # also if something was shared before: the database may be an older copy
            await self._share_own()
            return False
        if newest == self._seen:
            return False
        history = await self._history(newest)
        await self._fetch(history[-1].artefact)
        is_new = await asyncio.to_thread(self._versions.replace, history)  # another process may have it locked
        self._seen = newest
        return is_new

    async def learned(self, correction: str) -> None:
        """Shares a correction that was learned here, so that it can be promoted anywhere."""
        await self._store.keep(self._versions.files(correction=correction))

    async def activate(self, chosen: Active, *, author: str) -> None:
        """Raises StateError, changing nothing, if the choice cannot be loaded or somebody else made one meanwhile."""
        await self.follow()
        await self._keep(chosen)
        await self._choose([*self._versions.history(), chosen], "classifier.promote", author, chosen.at_us)

    async def rollback(self, *, author: str) -> Active:
        """Returns to the previous choice. Raises StateError if there is none."""
        newest = await self._store.newest()
        if not newest:
            await self.follow()
        history = await self._history(newest) if newest else self._versions.history()
        if len(history) < 2:
            raise StateError("there is no earlier classifier to go back to; the shipped one is in force")
        chosen, self._seen = history[-2], newest or self._seen
        await self._fetch(chosen.artefact)  # not the one in force: it may be damaged
        await self._keep(chosen)
        await self._choose(history[:-1], "classifier.rollback", author, now_us())
        return chosen

    async def _keep(self, chosen: Active) -> None:
        """Raises StateError if it cannot be loaded here."""
        self._versions.require(chosen)
        await self._store.keep(self._versions.files(artefact=chosen.artefact, correction=chosen.correction))

    async def _history(self, number: int) -> list[Active]:
        return [Active(**one) for one in json.loads(await self._store.history(number))]

    async def _choose(self, history: Sequence[Active], action: str, author: str, at_us: int) -> None:
        chosen = history[-1]
        choice = ClassifierChoice(
            number=self._seen + 1,
            history=json.dumps([asdict(one) for one in history]),
            at_us=at_us,
            author=author,
            action=action,
            subject=f"{chosen.artefact} + {chosen.correction or 'no correction'}",
            reason=chosen.why,
            artefacts=_last_artefacts(history),
        )
        if not await self._store.choose(choice):
            raise StateError(
                "another classifier was put in force at the same moment: look at `breakeven classifier list`, and try "
                "again if this one is still wanted"
            )
        self._seen = choice.number
        await asyncio.to_thread(self._versions.replace, history)

    async def _share_own(self) -> None:
        history = self._versions.history()
        if len(history) < 2:
            return
        self._versions.require(history[-1])
        for correction in self._versions.corrections():
            if self._versions.has_correction(correction):
                await self.learned(correction)
        for artefact in filter(self._versions.has, _last_artefacts(history)):
            await self._store.keep(self._versions.files(artefact=artefact))
        try:
            await self._choose(history, "classifier.share", "gateway", history[-1].at_us)
        except StateError:
            return  # another replica was first: its choice is followed next time

    async def _fetch(self, artefact: str) -> None:
        """All corrections, which past decisions refer to, and the artefact. What was learned here before anything was
        shared with this home is shared."""
        stored = await self._store.paths()
        own = {name for name in self._versions.corrections() if self._versions.has_correction(name)}
        there = {Path(path).stem for path in stored if path.startswith("corrections/")}
        self._versions.keep(await self._store.read([f"corrections/{name}.json" for name in there - own]))
        for name in own - there:
            await self.learned(name)
        if artefact == SHIPPED or self._versions.has(artefact):
            return
        files = await self._store.read([path for path in stored if path.startswith(f"artefacts/{artefact}/")])
        if not files:
            raise StateError(
                f"the artefact {artefact} is neither in this home nor in the database, which keeps the last "
                f"{KEPT_ARTEFACTS} in force: promote it again at a replica whose home has it (`breakeven classifier "
                "list`), or another one"
            )
        await asyncio.to_thread(self._versions.keep_artefact, artefact, files)


def _last_artefacts(history: Sequence[Active]) -> Sequence[str]:
    adapted = dict.fromkeys(one.artefact for one in reversed(history) if one.artefact != SHIPPED)
    return list(adapted)[:KEPT_ARTEFACTS]
