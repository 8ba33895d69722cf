"""The engine in a container at its thread limit."""

import subprocess
import sys

import pytest

pytest.importorskip(
    "tokenizers", reason="the engine's tokenizer comes with the engine extra (pip install breakeven[engine])"
)

SCRIPT = """
import resource
from tests.unit.local_engine.text.markup_tokens import chat_bytes
from local_engine.text.tokenizer import Tokenizer

tokenizer = Tokenizer(chat_bytes(), chat_template=None, bos_token_id=None, eos_token_ids=[256])
with open("/proc/self/statm") as file:
    present = int(file.read().split()[0]) * resource.getpagesize()
room = 256 * 1024  # for the text, and for no thread's stack
resource.setrlimit(resource.RLIMIT_AS, (present + room, resource.RLIM_INFINITY))
print(len(tokenizer.encode("hello")))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="how much a process has is read from Linux's /proc")
def test_a_loaded_tokenizer_starts_no_more_threads() -> None:
    """Its library starts them at the first text; if it cannot, that text and all later ones fail."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout.strip()) == (0, "5"), done.stderr
