"""Tries a folder's tokenizer in a separate process, with limits on time and memory, before the engine reads it.

A normalizer that doubles a text thirty times exhausts the memory, a regular expression the time, and when memory is
short the library aborts the process. Run as a module, this is that process.
"""

import resource
import subprocess
import sys
from pathlib import Path
from typing import Final

from local_engine.bounds import bound, environment
from local_engine.errors import ModelUnavailable

CPU_SECONDS: Final = 60
"""The largest vocabularies take a few."""
MEMORY_BYTES: Final = 4 << 30
RAISED: Final = 1
"""Status of a process that ends with an exception. The engine meets the same one when it reads the file."""
OUT_OF_MEMORY: Final = 3
TEXT: Final = " ".join(map(chr, range(0x21, 0x180)))


def try_tokenizer(folder: Path, *, memory_bytes: int = MEMORY_BYTES) -> None:
    """Raises ModelUnavailable for a tokenizer.json that exceeds the limits or crashes its process. Other faults are
    reported when it is read."""
    path = folder / "tokenizer.json"
    # Each of the library's threads would reserve memory of its own.
    alone = environment() | {"TOKENIZERS_PARALLELISM": "false"}
    command = [sys.executable, "-m", __name__, str(path), str(memory_bytes)]
    tried = subprocess.run(command, env=alone, capture_output=True, stdin=subprocess.DEVNULL, check=False)
    if tried.returncode not in (0, RAISED):
        raise ModelUnavailable(
            f"{path} is damaged: to read it, or to cut {len(TEXT)} characters by it, takes more than {CPU_SECONDS} "
            f"seconds of computing or {memory_bytes >> 20} MB of memory, or ends the process."
        )


def _try(path: str) -> None:
    # Imported here: whoever starts this process does not need it.
    from tokenizers import Tokenizer as FastTokenizer

    from local_engine.text.tokenizer import Tokenizer

    fast = FastTokenizer.from_file(path)
    fast.no_truncation()
    fast.no_padding()
    fast.encode("a")
    Tokenizer(fast, chat_template=None, bos_token_id=None, eos_token_ids=[]).encode(TEXT)


if __name__ == "__main__":
    bound(resource.RLIMIT_CORE, 0)
    bound(resource.RLIMIT_AS, int(sys.argv[2]))
    bound(resource.RLIMIT_CPU, CPU_SECONDS)
    try:
        _try(sys.argv[1])
    except MemoryError:
        sys.exit(OUT_OF_MEMORY)
