"""Asynchronous fdatasync through Linux AIO (io_submit with an eventfd), so that no thread waits for the disk.

Not io_uring, which the default seccomp profiles of containers forbid. Knows nothing of the event loop.
"""

import contextlib
import ctypes
import errno
import os
import platform
import struct
import sys

from gateway.ledger.disk import DiskFile

# linux/aio_abi.h on 64-bit little-endian machines. `struct iocb`: data, key, rw_flags, opcode, priority, file, buffer,
# bytes, offset, reserved, flags, eventfd. `struct io_event`: data, iocb, result, result2.
IOCB = struct.Struct("<QIiHhIQQqQII")
EVENT = struct.Struct("<QQqq")
FDSYNC = 3
TELL_EVENTFD = 1
# io_setup, io_destroy, io_getevents, io_submit
SYSTEM_CALLS = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}


class KernelQueue:
    """One sync at a time. Raises OSError with the kernel's reason where AIO is not available."""

    def __init__(self) -> None:
        calls = SYSTEM_CALLS.get(platform.machine())
        if sys.platform != "linux" or sys.maxsize < 1 << 32 or calls is None:
            raise OSError(errno.ENOSYS, f"not known on {platform.system()} {platform.machine()}")
        # Made once, as are the numbers below: a C integer costs as much as a call.
        self._setup, self._destroy, self._get_events, self._submit = map(ctypes.c_long, calls)
        self._none, self._one = ctypes.c_long(0), ctypes.c_long(1)
        # Only `io_destroy` blocks; for the others, releasing the GIL would cost more than the call itself.
        self._quick = ctypes.PyDLL(None, use_errno=True).syscall
        self._slow = ctypes.CDLL(None, use_errno=True).syscall
        self._iocb = ctypes.create_string_buffer(IOCB.size)
        self._iocbs = (ctypes.c_void_p * 1)(ctypes.addressof(self._iocb))
        self._event = ctypes.create_string_buffer(EVENT.size)
        self._submitted = 0
        context = ctypes.c_ulong(0)
        self._call("io_setup", self._setup, 1, ctypes.byref(context))
        self._context = context
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        """An eventfd that becomes readable when a sync has ended."""
        return self._bell

    def submit(self, file: DiskFile) -> None:
        """Start syncing what was written to `file`. Raises OSError if the kernel refuses; then nothing was started."""
        self._submitted += 1
        IOCB.pack_into(
            self._iocb, 0, self._submitted, 0, 0, FDSYNC, 0, file.fileno(), 0, 0, 0, 0, TELL_EVENTFD, self._bell
        )  # fmt: skip
        self._call("io_submit", self._submit, self._context, self._one, self._iocbs)

    def take(self) -> bool:
        """Whether the sync under way has ended. Raises OSError when it failed, or when its result makes no sense."""
        try:
            os.eventfd_read(self._bell)
        except BlockingIOError:
            return False
        count = self._call("io_getevents", self._get_events, self._context, self._none, self._one, self._event, None)
        number, _, result, _ = EVENT.unpack_from(self._event)
        if count != 1 or number != self._submitted or result > 0:
            raise OSError(errno.EPROTO, f"the kernel's answer to a sync makes no sense ({count}, {number}, {result})")
        if result < 0:
            raise OSError(-result, os.strerror(-result))
        return True

    def close(self) -> None:
        """Waits for a sync still under way; takes some milliseconds even without one."""
        with contextlib.ExitStack() as last:
            last.callback(os.close, self._bell)
            self._slow(self._destroy, self._context)

    def _call(self, name: str, number: ctypes.c_long, *arguments: object) -> int:
        result = int(self._quick(number, *arguments))
        if result < 0:
            code = ctypes.get_errno()
            raise OSError(code, f"{name}: {os.strerror(code)}")
        return result
