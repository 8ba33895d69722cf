"""Lists the benchmarks (`make bench`): running them all would take hours, and some need data."""

import ast
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent


def benchmarks() -> Iterator[tuple[str, str]]:
    """Name and first line of the docstring of each module or package that can be run."""
    for file in sorted([*HERE.glob("*.py"), *HERE.glob("*/__main__.py")], key=_name):
        text = file.read_text(encoding="utf-8")
        if file != Path(__file__) and 'if __name__ == "__main__":' in text:
            yield _name(file), (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]


def _name(file: Path) -> str:
    return file.parent.name if file.name == "__main__.py" else file.stem


def main() -> None:
    print("python -m benchmarks.NAME --help says what each needs. Their last results are in benchmarks/results/.\n")
    found = list(benchmarks())
    width = max(len(name) for name, _ in found)
    for name, purpose in found:
        print(f"  {name:{width}}  {purpose}")


if __name__ == "__main__":
    main()
