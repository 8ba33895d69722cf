"""`python -m benchmarks.engine_cpu.build_llama_server`: compiles llama.cpp's own server for this machine, once.

llama-cpp-python's source package contains llama.cpp. pip downloads it; cmake and a C++ compiler build it for this
processor as .venv-llama/bin/llama-server, where the benchmark looks for it. Takes about ten minutes.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

SOURCE: Final = "llama-cpp-python==0.3.36"
TARGET: Final = Path(__file__).resolve().parents[2] / ".venv-llama" / "bin" / "llama-server"
OFF: Final = (
    "BUILD_SHARED_LIBS", "LLAMA_BUILD_UI", "LLAMA_USE_PREBUILT_UI", "LLAMA_BUILD_TESTS", "LLAMA_BUILD_EXAMPLES",
    "LLAMA_BUILD_APP", "LLAMA_OPENSSL",
)  # fmt: skip


def main() -> int:
    """Build it, unless it exists."""
    if TARGET.exists():
        print(f"{TARGET} is there already; delete it to build it again.")
        return 0
    absent = [tool for tool in ("cmake", "g++") if shutil.which(tool) is None]
    if absent:
        print(f"Building llama-server needs {' and '.join(absent)}: apt-get install cmake g++", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as scratch:
        build(Path(scratch))
    print(TARGET)
    return 0


def build(scratch: Path) -> None:
    """Fetch, configure, compile, copy."""
    fetch = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", "llama-cpp-python", SOURCE]
    subprocess.run([*fetch, "--dest", str(scratch)], check=True)
    with tarfile.open(next(scratch.glob("*.tar.gz"))) as archive:
        archive.extractall(scratch, filter="data")
    source, into = next(scratch.glob("*/vendor/llama.cpp")), scratch / "build"
    options = ["-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", *(f"-D{name}=OFF" for name in OFF)]
    subprocess.run(["cmake", "-S", str(source), "-B", str(into), *options], check=True)
    compile_it = ["cmake", "--build", str(into), "--target", "llama-server", "--parallel", str(os.cpu_count() or 1)]
    subprocess.run(compile_it, check=True)
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(next(into.glob("bin/llama-server")), TARGET)


if __name__ == "__main__":
    sys.exit(main())
