"""A rules file broken in every way while the gateway serves: the last good version stays, and the reason is shown."""

import os
from pathlib import Path

import pytest

from tests.unit.gateway.api.fakes import FIRST_RULES, AdminRig

pytestmark = pytest.mark.faults
BROKEN: dict[str, bytes] = {
    "empty": b"",
    "blank": b"\n\n# nothing\n",
    "half written": FIRST_RULES.encode()[: len(FIRST_RULES) * 2 // 3],
    "50 MB": FIRST_RULES.encode() + b"# x\n" * (50 * 1024 * 1024 // 4),
    "an unknown model": FIRST_RULES.replace("small", "nobody").encode(),
    "an unknown field": FIRST_RULES.replace("by: order", "by: order, why: not").encode(),
    "a rule that can never match": FIRST_RULES.replace(
        "rules:\n", "rules:\n  - {name: a, choose: {from: any}}\n"
    ).encode(),
    "not UTF-8": FIRST_RULES.encode() + b"# \xff\xfe\n",
    "not text": os.urandom(64) + b"\x00",
    "a key twice": FIRST_RULES.encode() + b"version: 1\n",
    "an object of Python": b"!!python/object/apply:os.system ['true']\n",
    "a bomb of aliases": b"a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nd: [*c,*c]\n",
}


@pytest.mark.parametrize("name", BROKEN)
async def test_the_last_good_version_serves_on_and_the_reason_is_shown(name: str, tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(FIRST_RULES, encoding="utf-8")
    rig = AdminRig(file)
    await rig.rules.refresh()
    good = rig.rules.applied
    assert good is not None
    file.write_bytes(BROKEN[name])
    os.utime(file, ns=(10**18, 2 * 10**18))
    await rig.rules.refresh()
    assert rig.rules.applied == good
    assert rig.rules.problem is not None
    assert len(rig.rules.problem.message) > 5
    file.write_text(FIRST_RULES, encoding="utf-8")
    os.utime(file, ns=(10**18, 3 * 10**18))
    await rig.rules.refresh()
    assert rig.rules.problem is None
