"""Runs the commands as a user types them."""

from typer.testing import CliRunner

from gateway.cli import build


def run_cli(command: str, *words: str, exit_code: int = 0) -> str:
    result = CliRunner().invoke(build(command), [command, *words], catch_exceptions=False)
    assert result.exit_code == exit_code, result.output
    return result.stdout if exit_code == 0 else result.output
