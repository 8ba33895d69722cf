import errno
import os

import pytest

from dashboards.__main__ import why_no_semaphore


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.EACCES, errno.ENOENT])
def test_what_shared_memory_lacks_is_told_with_what_to_mount(number: int) -> None:
    """It ended in the page framework's own traceback, once a moment."""

    def make() -> object:
        raise OSError(number, os.strerror(number))

    assert f"{os.strerror(number)}). Mount a tmpfs at /dev/shm" in str(why_no_semaphore(make))


def test_where_there_is_shared_memory_nothing_is_told() -> None:
    assert why_no_semaphore() is None
