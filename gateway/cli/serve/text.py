"""What `breakeven serve` tells whoever started it."""

import os
from pathlib import Path

from rich.console import Console

from gateway.cli.serve.children import Addresses
from gateway.composition.deployment import Deployment
from gateway.composition.first_keys import FirstKeys
from gateway.extras import install_command

STOPPING = "Stopping: finishing requests, shipping the ledger"
STOPPING_ALREADY = (
    "Stopping already: what was answered is being written to the database. `kill -9` loses none of it: what is not "
    "written by then is in the journal, and the next start writes it"
)


def without_engine(config_file: Path) -> str:
    """For the first start, which wrote the engine's setting as off."""
    return (
        f"The bundled engine is not installed here, so it is off. {install_command('engine')} adds it; "
        f"then set engine.is_enabled to true in {config_file}"
    )


def show_addresses(addresses: Addresses, keys: FirstKeys | None, console: Console, *, is_ui_installed: bool) -> None:
    """Where to go, and with which keys."""
    show_keys(keys, console)
    console.print(f"Gateway   {addresses.gateway}/v1   (API documentation: {addresses.gateway}/docs)")
    if addresses.ui is not None:
        console.print(f"Web UI    {addresses.ui}   (sign in with the owner key)")
    elif not is_ui_installed:
        console.print(f"Web UI    not installed: {install_command('ui')} adds it", markup=False)


def show_ready(deployment: Deployment, addresses: Addresses, keys: FirstKeys | None, console: Console) -> None:
    """Which models there are and how to call them; printed last."""
    facts = deployment.table.facts
    used = [facts[spec.backend] for spec in deployment.catalogue.models(deployment.rules).values()]
    hosted = sorted({one.provider for one in used if one.speed is None and not one.is_simulated})
    said = ", ".join(hosted) if hosted else "none: set OPENAI_API_KEY or another key to add models"
    console.print(f"Hosted    {said}")
    show_examples(addresses.gateway, keys.app if keys else None, console)
    if all(one.is_simulated for one in used):
        console.print(
            "No model can answer yet: set a provider's key or name a backend in breakeven.yaml, and start again"
        )
    console.print("Ready. Ctrl-C stops.")


def show_keys(keys: FirstKeys | None, console: Console) -> None:
    """The secrets, this once."""
    if keys is None:
        return
    console.print("\nTwo API keys were created. They are shown this once; only their hashes are stored:")
    console.print(f"  owner key (web UI, administration)  {keys.owner}")
    console.print(f"  app key   (calls models)            {keys.app}\n")


def show_examples(url: str, app_key: str | None, console: Console) -> None:
    """Two ways to ask, ready to paste."""
    known = app_key or os.environ.get("BREAKEVEN_API_KEY")
    if known is None:
        console.print("\n  export BREAKEVEN_API_KEY=...   # lost? breakeven keys create --name NAME")
        console.print("                                 # for administration and the web UI: with --role owner")
    console.print(
        f"""
  curl {url}/v1/chat/completions \\
    -H "Authorization: Bearer {known or "$BREAKEVEN_API_KEY"}" -H "Content-Type: application/json" \\
    -d '{{"model": "auto", "temperature": 0,
         "messages": [{{"role": "user", "content": "What is the capital of France?"}}]}}'

  # pip install openai
  from openai import OpenAI
  client = OpenAI(base_url="{url}/v1", api_key="{known or "YOUR_APP_KEY"}")
  answer = client.chat.completions.create(
      model="auto", temperature=0, messages=[{{"role": "user", "content": "What is the capital of France?"}}]
  )
  print(answer.choices[0].message.content)
""",
        markup=False,
    )
