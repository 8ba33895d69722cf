"""Two replicas' homes have one classifier between them, on both databases."""

import asyncio
import fcntl
from pathlib import Path
from threading import Timer

import pytest
from sqlalchemy import delete, update
from sqlalchemy.ext.asyncio import AsyncEngine

from classifier.load import SHIPPED as SHIPPED_FOLDER
from classifier.load import load_artefact
from classifier.online.correction import Correction
from gateway.errors import StateError
from gateway.learning.classifier_versions import SHIPPED, Active, ClassifierVersions
from gateway.learning.shared_versions import SharedVersions
from gateway.storage.database import writing
from gateway.storage.sql.audit import SqlAuditLog
from gateway.storage.sql.classifier import SqlClassifier
from gateway.storage.tables.administration import classifier_choices, classifier_files

pytestmark = pytest.mark.integration


class Replica:
    def __init__(self, home: Path, engine: AsyncEngine) -> None:
        self.home = home
        self.versions = ClassifierVersions(home)
        self.shared = SharedVersions(self.versions, SqlClassifier(engine))

    async def learn(self, level: float) -> str:
        name = self.versions.add_correction(Correction({"a": (level, 0.0)}), {"judged": 60})
        await self.shared.learned(name)
        return name


@pytest.fixture
def pair(engine: AsyncEngine, tmp_path: Path) -> tuple[Replica, Replica]:
    return Replica(tmp_path / "one", engine), Replica(tmp_path / "two", engine)


async def test_what_one_promotes_or_takes_back_is_in_force_at_the_other(
    pair: tuple[Replica, Replica], engine: AsyncEngine
) -> None:
    one, two = pair
    assert not await two.shared.follow()
    name = await one.learn(0.5)
    await one.shared.activate(Active(SHIPPED, name, "tested", 1), author="ann")
    assert await two.shared.follow()
    assert not await two.shared.follow()
    assert two.versions.history() == one.versions.history()
    assert two.versions.open().version == f"{load_artefact().version}+{name}"
    assert await two.shared.rollback(author="bob") == Active()
    assert await one.shared.follow()
    assert one.versions.history() == [Active()]
    with pytest.raises(StateError, match="no earlier classifier"):
        await one.shared.rollback(author="ann")
    told = [
        (record.actor, record.action, record.reason) for record in await SqlAuditLog(engine).page(before=None, limit=9)
    ]
    assert told == [("bob", "classifier.rollback", "the shipped artefact"), ("ann", "classifier.promote", "tested")]


async def test_a_correction_can_be_promoted_where_it_was_not_learned_and_all_of_the_past_are_known(
    pair: tuple[Replica, Replica], engine: AsyncEngine, tmp_path: Path
) -> None:
    one, two = pair
    first, second = await one.learn(0.5), await one.learn(-0.5)
    await one.shared.activate(Active(SHIPPED, first, "", 1), author="ann")
    await two.shared.follow()
    await two.shared.activate(Active(SHIPPED, second, "", 2), author="ann")
    new = Replica(tmp_path / "new", engine)
    assert await new.shared.follow()
    assert [new.versions.correction(name).shifts["a"][0] for name in (first, second)] == [0.5, -0.5]
    assert [one.correction for one in new.versions.history()] == [None, first, second]


async def test_an_adapted_artefact_reaches_the_other_home_whole_or_not_at_all(
    pair: tuple[Replica, Replica], engine: AsyncEngine
) -> None:
    one, two = pair
    name = one.versions.add_artefact(SHIPPED_FOLDER)
    await one.shared.activate(Active(name, None, "", 1), author="ann")
    await one.shared.activate(Active(SHIPPED, None, "", 2), author="ann")
    async with writing(engine) as connection:  # as if five others had been in force since
        await connection.execute(delete(classifier_files))
    await one.shared.rollback(author="ann")
    assert await two.shared.follow()
    assert two.versions.artefacts() == [SHIPPED, name]
    (two.home / "artefacts" / name / "weights.bin").write_bytes(b"half")
    again = SharedVersions(two.versions, SqlClassifier(engine))
    await again.follow()
    assert two.versions.has(name), "a damaged copy is fetched again at the next start"

    (two.home / "artefacts" / name / "weights.bin").write_bytes(b"half")
    async with writing(engine) as connection:
        cut = update(classifier_files).where(classifier_files.c.path.endswith("weights.bin"))
        await connection.execute(cut.values(content=b"half"))
    again = SharedVersions(two.versions, SqlClassifier(engine))
    with pytest.raises(StateError, match="damaged or mixed"):
        await again.follow()
    assert [path.name for path in (two.home / "artefacts").iterdir()] == [name]
    assert await again.rollback(author="ann") == Active(), "the way out of it"


async def test_of_those_who_promote_at_once_one_is_in_force_everywhere_and_the_others_are_told(
    engine: AsyncEngine, tmp_path: Path
) -> None:
    replicas = [Replica(tmp_path / str(number), engine) for number in range(4)]
    names = [await replica.learn(0.1 * number) for number, replica in enumerate(replicas)]

    async def promote(replica: Replica, name: str) -> None:
        await replica.shared.activate(Active(SHIPPED, name, "", 1), author="ann")

    found = await asyncio.gather(*(promote(*one) for one in zip(replicas, names, strict=True)), return_exceptions=True)
    refused = [one for one in found if one is not None]
    assert all("put in force at the same moment" in str(one) for one in refused)
    assert len(refused) < len(names)
    for replica in replicas:
        await replica.shared.follow()
    histories = {tuple(one.correction for one in replica.versions.history()) for replica in replicas}
    [history] = histories
    assert set(history[1:]) == {name for name, refusal in zip(names, found, strict=True) if refusal is None}


async def test_what_a_home_had_before_anything_was_shared_is_shared_by_the_first_to_come(
    pair: tuple[Replica, Replica],
) -> None:
    one, two = pair
    for replica, level in ((one, 0.5), (two, -0.5)):
        name = replica.versions.add_correction(Correction({"a": (level, 0.0)}), {})
        replica.versions.replace([Active(), Active(SHIPPED, name, "before", 1)])
    kept = one.versions.history()
    assert not await one.shared.follow()
    assert await two.shared.follow()
    assert two.versions.history() == one.versions.history() == kept


async def test_what_a_home_learned_before_it_shared_anything_is_known_to_those_who_shared_first(
    pair: tuple[Replica, Replica], engine: AsyncEngine
) -> None:
    """Requests that it decided are in everybody's books: learning from them ended in an error at the others."""
    one, two = pair
    await one.shared.activate(Active(SHIPPED, await one.learn(0.5), "", 1), author="ann")
    name = two.versions.add_correction(Correction({"a": (-0.5, 0.0)}), {})
    two.versions.replace([Active(), Active(SHIPPED, name, "by an older version", 1)])
    assert await two.shared.follow()
    await SharedVersions(one.versions, SqlClassifier(engine)).follow()  # as each command does
    assert one.versions.has_correction(name)


async def test_the_database_keeps_the_artefacts_that_were_last_in_force(
    pair: tuple[Replica, Replica], engine: AsyncEngine
) -> None:
    """Each has over 4 MB, and every backup copied all that there ever were."""
    one, two = pair
    store = SqlClassifier(engine)
    names = [f"{number:016x}" for number in range(7)]
    await store.keep({f"artefacts/{name}/{part}": b"4 MB" for name in names for part in ("a", "b")})
    correction = await one.learn(0.5)
    one.versions.replace([*(Active(name) for name in names), Active(names[3]), Active()])
    await one.shared.follow()
    kept = {Path(path).parts[1] for path in await store.paths() if path.startswith("artefacts/")}
    assert kept == {names[number] for number in (6, 3, 5, 4, 2)}
    assert len(await store.paths()) == 2 * 5 + 1
    await two.shared.follow()
    assert two.versions.corrections() == [correction]
    async with writing(engine) as connection:
        await connection.execute(delete(classifier_files))
    with pytest.raises(StateError, match=f"artefact {names[3]} is neither in this home nor in the database"):
        await two.shared.rollback(author="ann")


async def test_a_command_that_stands_still_holds_up_no_request(pair: tuple[Replica, Replica]) -> None:
    """Stopped (Ctrl-Z) while it kept an artefact, one stopped each gateway of its home at the next promotion."""
    one, two = pair
    await one.shared.activate(Active(SHIPPED, await one.learn(0.5), "", 1), author="ann")
    two.home.mkdir()
    with (two.home / "active.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        rescue = Timer(30, fcntl.flock, (lock, fcntl.LOCK_UN))
        rescue.start()
        following = asyncio.create_task(two.shared.follow())
        await asyncio.sleep(0.2)
        assert not following.done(), "other work had its turn meanwhile"
        rescue.cancel()
        rescue.join()
    assert await following


async def test_what_a_database_of_before_lacks_is_shared_again_by_those_who_run(
    pair: tuple[Replica, Replica], engine: AsyncEngine
) -> None:
    one, two = pair
    name = await one.learn(0.5)
    await one.shared.activate(Active(SHIPPED, name, "tested", 1), author="ann")
    async with writing(engine) as connection:
        for table in (classifier_choices, classifier_files):
            await connection.execute(delete(table))
    assert not await one.shared.follow()
    assert await two.shared.follow()
    assert two.versions.history() == one.versions.history() == [Active(), Active(SHIPPED, name, "tested", 1)]


async def test_what_a_home_has_damaged_or_not_at_all_is_not_shared_and_keeps_nothing_else_back(
    pair: tuple[Replica, Replica],
) -> None:
    one, two = pair
    good, bad = (one.versions.add_correction(Correction({"a": (level, 0.0)}), {}) for level in (0.5, -0.5))
    (one.home / "corrections" / f"{bad}.json").write_text("{")
    gone = Active("0" * 16, None, "its folder was deleted since", 1)
    history = [Active(), gone, Active(SHIPPED, good, "before", 2)]
    one.versions.replace(history)
    await one.shared.follow()
    assert await two.shared.follow()
    assert (two.versions.history(), two.versions.corrections()) == (history, [good])


async def test_a_choice_that_the_first_home_cannot_load_itself_is_shared_with_nobody(
    pair: tuple[Replica, Replica],
) -> None:
    one, two = pair
    name = one.versions.add_correction(Correction({"a": (0.5, 0.0)}), {})
    one.versions.replace([Active(), Active(SHIPPED, name, "before", 1)])
    (one.home / "corrections" / f"{name}.json").write_text("{")
    with pytest.raises(StateError, match=f"no usable correction {name}"):
        await one.shared.follow()
    assert not await two.shared.follow()


async def test_a_correction_that_was_damaged_in_a_home_is_fetched_again(pair: tuple[Replica, Replica]) -> None:
    one, two = pair
    first, second = await one.learn(0.5), await one.learn(-0.5)
    await one.shared.activate(Active(SHIPPED, first, "", 1), author="ann")
    await two.shared.follow()
    for name in (first, second):
        (two.home / "corrections" / f"{name}.json").write_text("{")
    await one.shared.activate(Active(SHIPPED, second, "", 2), author="ann")
    assert await two.shared.follow()
    assert [two.versions.correction(name).shifts["a"][0] for name in (first, second)] == [0.5, -0.5]
