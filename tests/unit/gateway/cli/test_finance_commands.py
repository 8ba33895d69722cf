"""The finance commands over a made-up month: files, forecasts, what-ifs and reconciliation, as a user types them."""

import asyncio
import csv
import gzip
import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.cli import build
from gateway.cli.demo.month import write_demo_month
from gateway.cli.reconcile import Booked, cells, our_cell, said_of
from gateway.config.home import Home
from gateway.errors import ConfigurationError, InvalidRequest, StateError
from gateway.reports.reconcile_views import ReconciledRow
from tests.unit.gateway.cli.commands import run_cli

PERIOD = ("--from", "2026-10-20", "--to", "2026-11-20")
WHEN = ("--since", "2026-10-20", "--until", "2026-11-20")


pytestmark = pytest.mark.usefixtures("month")


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_focus_goes_to_the_terminal_or_a_file_whole_or_not_at_all(tmp_path: Path) -> None:
    shown = rows(run_cli("export", "focus", *PERIOD))
    out = tmp_path / "focus.csv"
    run_cli("export", "focus", *PERIOD, "--out", str(out))
    assert rows(out.read_text()) == shown
    assert {row["ChargeCategory"] for row in shown} == {"Usage", "Purchase"}
    named, told, other = (tmp_path / name for name in ("focus.parquet", "focus.bin", "other.parquet"))
    run_cli("export", "focus", *PERIOD, "--out", str(named))
    run_cli("export", "focus", *PERIOD, "--format", "parquet", "--out", str(told))
    run_cli("export", "focus", *PERIOD, "--format", "csv", "--out", str(other))
    assert named.read_bytes()[:4] == told.read_bytes()[:4] == b"PAR1"
    assert rows(other.read_text()) == shown
    assert "--out" in run_cli("export", "focus", "--format", "parquet", exit_code=2)
    with pytest.raises(StateError, match="cannot write"):
        run_cli("export", "focus", *PERIOD, "--out", str(tmp_path / "nowhere" / "f.csv"))


def test_where_no_end_user_is_recorded_costs_by_end_user_say_how_to() -> None:
    shown = run_cli("costs", "--by", "end_user", "--where", "team=support", *PERIOD)
    assert "(none)" in shown
    assert "record_end_users: true" in shown
    everybody = json.loads(run_cli("costs", "--by", "end_user", "--json", *PERIOD))
    assert (everybody["idle"], everybody["savings"], everybody["groups"]) == (None, [], 1)
    nobody = run_cli("costs", "--by", "model", "--where", "end_user=customer-7", *PERIOD)
    assert "record_end_users" not in nobody
    forgotten = run_cli("retention", "--forget-end-user", "customer-7", "--json")
    assert json.loads(forgotten) == {"requests": 0, "bodies": 0}


def test_a_team_s_costs_are_a_file_too() -> None:
    asked = ("--by", "model", "--where", "team=support", *PERIOD)
    exported, shown = rows(run_cli("export", "costs", *asked)), rows(run_cli("costs", "--csv", *asked))
    assert exported == shown
    assert sum(Decimal(row["cost_usd"]) for row in exported) == Decimal(
        json.loads(run_cli("costs", "--json", *asked))["total"]["cost_usd"]
    )
    everybody = rows(run_cli("export", "costs", "--by", "team", *PERIOD))
    [support] = [row for row in everybody if row["team"] == "support"]
    assert sum(Decimal(row["cost_usd"]) for row in exported) == Decimal(support["cost_usd"])


def test_exported_costs_equal_the_screen() -> None:
    table = json.loads(run_cli("costs", "--by", "team", *WHEN, "--json"))
    exported = rows(run_cli("export", "costs", "--by", "team", *PERIOD))
    assert {row["team"]: Decimal(row["cost_usd"]) for row in exported} == {
        row["group"]["team"] or "": Decimal(row["cost_usd"]) for row in table["rows"]
    }
    assert Decimal(table["unallocated_usd"]) == sum(Decimal(row["cost_usd"]) for row in exported if not row["team"])


def test_costs_of_one_team_are_its_row() -> None:
    since = (*WHEN, "--json")
    table = json.loads(run_cli("costs", "--by", "team", *since))
    [row] = [row for row in table["rows"] if row["group"]["team"] == "search"]
    one = json.loads(run_cli("costs", "--by", "model", "--where", "team=search", *since))
    assert one["total"]["cost_usd"] == row["cost_usd"]
    for wrong in ("team", "colour=red"):
        assert "takes NAME=VALUE" in run_cli("costs", "--where", wrong, exit_code=2)


def test_a_misspelt_filter_is_said_to_match_nothing() -> None:
    """$0 for a team that does not exist would look like a team that spent nothing."""
    asked = ("--by", "model", *PERIOD)
    said = "Nothing in this time has team=serch; there is: legal, research, search, support.\n"
    result = CliRunner().invoke(build("costs"), ["costs", *asked, "--csv", "--where", "team=serch"])
    assert (result.exit_code, result.stderr, rows(result.stdout)) == (0, said, [])
    exported = CliRunner().invoke(build("export"), ["export", "costs", *asked, "--where", "team=serch"])
    assert exported.stderr == f"note: {said}"
    both = CliRunner().invoke(
        build("costs"), ["costs", *asked, "--where", "team=legal", "--where", "project=query-rewrite"]
    )
    assert both.stderr == "Nothing in this time has all of: team=legal, project=query-rewrite.\n"
    assert not CliRunner().invoke(build("costs"), ["costs", *asked, "--where", "team=legal"]).stderr


def test_break_even_says_the_share_of_time_that_its_rent_and_idle_line_give() -> None:
    owned = json.loads(run_cli("break-even", *PERIOD, "--json"))["owned"]
    computed = 1 - Decimal(owned["idle_usd"]) / Decimal(owned["rent_usd"])
    shown = " ".join(run_cli("break-even", *PERIOD).split())
    assert f"it computed {computed:.2%} of the time, for {owned['utilisation']:.2%} of what it can do." in shown


def test_a_key_is_filtered_by_its_name_as_by_its_id() -> None:
    def total(key: str) -> str:
        return json.loads(run_cli("costs", "--where", f"key={key}", *PERIOD, "--json"))["total"]["cost_usd"]

    [key_id] = [one["id"] for one in json.loads(run_cli("keys", "list", "--json")) if one["name"] == "support-bot"]
    assert Decimal(total("support-bot")) == Decimal(total(key_id)) > 0
    exported = rows(run_cli("export", "costs", "--where", "key=support-bot", *PERIOD))
    assert sum(Decimal(row["cost_usd"]) for row in exported) == Decimal(total(key_id))
    for _ in range(2):
        run_cli("keys", "create", "--name", "twin")
    assert "2 keys are called 'twin'" in run_cli("costs", "--where", "key=twin", exit_code=2)


def test_a_wrong_word_is_refused_before_anything_is_read() -> None:
    assert "takes one to three" in run_cli("export", "costs", "--by", "colour", exit_code=2)
    assert "takes NAME=VALUE" in run_cli("export", "costs", "--where", "colour=red", exit_code=2)
    with pytest.raises(InvalidRequest, match="before"):
        run_cli("export", "focus", "--from", "2026-11-02", "--to", "2026-11-01")
    with pytest.raises(InvalidRequest, match="'vllm' is no backend of your own with a gpu_hour_usd"):
        run_cli("export", "break-even", "--backend", "vllm", *PERIOD)


@pytest.fixture(scope="module")
def written_lately(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A month that ends now, for forecasts; shared, not to be changed."""
    home = Home(tmp_path_factory.mktemp("lately"))
    month = asyncio.run(write_demo_month(home, now=datetime.now(UTC), requests=120))
    assert month is not None
    return month.home.root


@pytest.fixture
def lately(month: Path, written_lately: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BREAKEVEN_HOME", str(written_lately))


@pytest.mark.usefixtures("lately")
def test_a_forecast_of_nobody_is_said_to_be_of_nobody() -> None:
    asked = ["forecast", "--team"]
    result = CliRunner().invoke(build("forecast"), [*asked, "serch"], catch_exceptions=False)
    assert result.stderr == "Nothing in this time has team=serch; there is: legal, research, search, support.\n"
    result = CliRunner().invoke(build("forecast"), [*asked, "search"], catch_exceptions=False, env={"COLUMNS": "20"})
    assert not result.stderr
    assert "…" not in result.stdout, "a narrow terminal cuts no digit off"


def test_prices_are_applied_again_from_a_day_on() -> None:
    assert "0 corrections booked" in run_cli("prices", "reprice", "--from", "2026-10-20", "--to", "2026-11-20")


@pytest.mark.usefixtures("lately")
def test_a_forecast_says_how_the_budget_fares() -> None:
    view = json.loads(run_cli("forecast", "--days", "3", "--budget-usd", "5", "--json"))
    assert [len(view["days"]), view["budget"]["budget_usd"]] == [3, "5.000000000000"]
    assert "Budget $5.00" in run_cli("forecast", "--budget-usd", "5")


def test_a_status_that_is_none_is_told_which_there_are() -> None:
    said = " ".join(run_cli("logs", "--status", "done", exit_code=2).replace("│", " ").split())
    assert "status must be 'completed', 'partial'" in said


def test_a_what_if_of_no_gpu_of_the_table_says_what_there_is_and_shows_no_empty_table() -> None:
    with pytest.raises(InvalidRequest, match=r"^Nothing to compare: 'h100' is not in the table; it has nvidia-l4-24gb"):
        run_cli("what-if", "--gpu", "h100", *WHEN)
    assert json.loads(run_cli("what-if", "--gpu", "h100", *WHEN, "--json"))["answers"] == []


def test_a_what_if_names_its_sources() -> None:
    words = ("--gpu", "nvidia-h100-sxm-80gb", "--model", "llama-3.1-8b-instruct", *WHEN)
    [answer] = json.loads(run_cli("what-if", *words, "--json"))["answers"]
    assert answer["price_source"]
    assert answer["speed_basis"] == "assumed"
    assert "assumed speed" in " ".join(run_cli("what-if", *words).split())


def test_what_does_not_fit_is_named_once() -> None:
    said = run_cli("what-if", "--gpu", "nvidia-l4-24gb", *WHEN)
    assert said.count("qwen2.5-14b-instruct") == 1


def test_dollars_of_a_bill_are_rounded_as_decimals() -> None:
    assert cells("0.000002500000", None, "99999999999.123456789012") == ["0.000002", "", "99999999999.123457"]


def test_what_remains_of_an_invoice_is_booked_under_another_number() -> None:
    said = said_of(Booked(1, 2, 0), "INV-1")
    assert said.startswith("1 difference booked under 'INV-1'. 2 were booked under it before")
    assert said.endswith("such as INV-1-2.")


@pytest.mark.parametrize(
    ("requests", "unpriced", "usd", "said"),
    [(3, 3, "0", "unknown"), (3, 2, "0", "0.000000"), (3, 3, "0.5", "0.500000"), (0, 0, "0", "0.000000")],
)
def test_what_no_price_is_known_of_is_not_nothing_beside_an_invoice(
    requests: int, unpriced: int, usd: str, said: str
) -> None:
    row = ReconciledRow(
        day=date(2026, 1, 1),
        model="m",
        our_requests=requests,
        our_unpriced_requests=unpriced,
        their_requests=None,
        our_input_tokens=0,
        their_input_tokens=None,
        our_output_tokens=0,
        their_output_tokens=None,
        our_usd=usd,
        their_usd="1",
        difference_usd="1",
        likely_reason="",
    )
    assert our_cell(row) == said


def test_reconcile_reads_a_file(tmp_path: Path) -> None:
    file = tmp_path / "costs.csv"
    file.write_text("start_time_iso,amount_value,amount_currency,line_item\n2026-11-02T00:00:00Z,0.5,usd,gpt-x\n")
    view = json.loads(run_cli("reconcile", str(file), "--provider", "openai", "--json"))
    assert (view["their_usd"], view["agrees"]) == ("0.500000000000", False)
    said = run_cli("reconcile", str(file), "--provider", "openai", "--book", "INV-1")
    assert (
        "0 differences booked under 'INV-1'. 1 cannot be booked: there is no request of ours of that day and model."
        in said
    )
    assert "before" not in said
    with pytest.raises(ConfigurationError, match=r"cannot be read: No such file or directory$"):
        run_cli("reconcile", str(tmp_path / "none.csv"), "--provider", "openai")
    for content, problem in (
        (b"\xff\xfe", "not text in UTF-8"),
        (b"\x1f\x8bnothing", "not text in UTF-8, plain or gzipped"),
        (b"PAR1\x15", "it is Parquet; turn it into CSV first"),
        (b"PK\x03\x04", "it is an archive; unpack it first"),
    ):
        file.write_bytes(content)
        with pytest.raises(ConfigurationError, match=problem):
            run_cli("reconcile", str(file), "--provider", "openai")


CUR = (
    "line_item_line_item_type,line_item_usage_start_date,line_item_product_code,line_item_usage_type,"
    "line_item_unblended_cost\n"
)


def test_reconcile_reads_the_parts_of_a_clouds_bill_gzipped_or_not(tmp_path: Path) -> None:
    one, other = tmp_path / "1.csv.gz", tmp_path / "2.csv"
    row = "Usage,2026-11-02T00:00:00Z,AmazonBedrock,USE1-Claude4.6Sonnet-input-tokens,0.5\n"
    one.write_bytes(gzip.compress((CUR + row).encode()))
    other.write_text(CUR + row.replace("0.5", "0.25"))
    view = json.loads(run_cli("reconcile", str(one), str(other), "--provider", "bedrock", "--json"))
    assert [(row["model"], row["their_usd"]) for row in view["rows"]] == [("claude4-6sonnet", "0.750000000000")]
    other.write_text(CUR + row + row.replace("AmazonBedrock", "AmazonS3"))
    said = run_cli("reconcile", str(other), "--provider", "bedrock")
    assert "Left out of their bill: other services $0.500000000000." in said
    asked = ("reconcile", str(other), "--provider", "bedrock", "--named")
    with pytest.raises(InvalidRequest, match=r"no model of ours is called 'x' on these days; they are \(none\)"):
        run_cli(*asked, "claude4-6sonnet=x")
    with pytest.raises(ConfigurationError, match="--named takes THEIRS=OURS"):
        run_cli(*asked, "claude4-6sonnet")
    said = said_of(Booked(1, 0, 0, 2), "INV-1")
    assert said == (
        "1 difference booked under 'INV-1'. 2 were not booked, because a meter that we do not know may be that model: "
        "say which with --named."
    )
