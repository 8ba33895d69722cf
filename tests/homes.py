"""Homes as a first start leaves them."""

from pathlib import Path

from gateway.config.first_files import write_first_files
from gateway.config.home import Home, create_home


def new_home(root: Path) -> Home:
    home = Home(root)
    create_home(home)
    write_first_files(home)
    return home
