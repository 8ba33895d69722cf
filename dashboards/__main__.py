"""`python -m dashboards --gateway http://127.0.0.1:8080 --port 8081`: serves the web UI under /ui."""

import argparse
from pathlib import Path

import uvicorn

from dashboards.app import UiSettings, build_app
from dashboards.oidc_sign_in import CONFIGURATION, read_oidc


def main() -> None:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(prog="python -m dashboards", description="Breakeven's web UI.")
    parser.add_argument("--gateway", default="http://127.0.0.1:8080", help="the gateway's address, as seen from here")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8081)
    parser.add_argument("--behind-tls", action="store_true", help="a proxy in front speaks HTTPS: secure cookies only")
    parser.add_argument("--state", type=Path, help="a directory: sessions outlive a restart in it")
    asked = parser.parse_args()
    try:
        oidc = read_oidc()
    except (ValueError, KeyError, TypeError) as error:
        parser.error(f"{CONFIGURATION} cannot be used: {error}")
    app = build_app(UiSettings(asked.gateway, is_secure=asked.behind_tls, state=asked.state, oidc=oidc))
    uvicorn.run(app, host=asked.host, port=asked.port, log_level="warning", server_header=False, access_log=False)


if __name__ == "__main__":
    main()
