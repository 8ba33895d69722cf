"""The audit log over HTTP."""

from gateway.api.admin.audit import MOST_RECORDS
from tests.unit.gateway.api.fakes import AdminRig

PATH = "/admin/v1/audit"


async def test_a_page_before_a_number_that_no_database_counts_to_is_refused_in_words() -> None:
    rig = await AdminRig().start()
    assert rig.ask("owner", "GET", f"{PATH}?before={MOST_RECORDS}").status_code == 200
    refused = rig.ask("owner", "GET", f"{PATH}?before={MOST_RECORDS + 1}")
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "before"
