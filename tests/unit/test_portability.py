"""Python runs on macOS too, without some of what it has on Linux."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("gateway", "backends", "classifier", "local_engine", "migrations", "dashboards", "native")
LINUX_ALONE = re.compile(
    r"os\.(?:fdatasync|eventfd\w*|EFD_\w+|sched_[gs]etaffinity|pidfd_open|memfd_create|posix_fallocate|posix_fadvise|"
    r"copy_file_range|splice|pipe2|getrandom|O_DIRECT|O_PATH|O_TMPFILE)\b|select\.epoll|"
    r"socket\.(?:TCP_USER_TIMEOUT|TCP_QUICKACK|TCP_CORK|TCP_INFO|SOCK_CLOEXEC|SOCK_NONBLOCK|SO_PEERCRED)\b"
)
# Both are used only where sys.platform says so.
ASK_FIRST = {"gateway/ledger/disk.py", "gateway/ledger/native/native_thread.py"}


def test_what_only_linux_has_is_used_only_where_the_platform_was_asked() -> None:
    files = (path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
    using = {str(path.relative_to(ROOT)) for path in files if LINUX_ALONE.search(path.read_text(encoding="utf-8"))}
    assert using == ASK_FIRST
