"""Enforces the import rules of docs/architecture.md: rooms import in one direction, without cycles of modules or
rooms."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("gateway", "backends", "classifier", "local_engine", "migrations", "dashboards", "native", "benchmarks")

# Importer (a module and everything below it) -> what it must never import, at any level of nesting in its files.
EDGES = tuple(f"gateway.{room}" for room in ("api", "cli", "composition", "config", "reports", "storage"))
DATABASES = ("fastapi", "sqlalchemy", "redis")
# Rooms of the gateway that are on a request's path, or do no IO.
INNER = (
    "access",
    "kept_answers",
    "learning",
    "ledger",
    "limits",
    "notices",
    "process",
    "request",
    "rulebook",
    "telemetry",
)
IO = ("time", "os", "socket", "asyncio", "random", "aiohttp", "httpx", "sqlalchemy", "redis", "pathlib", "threading")
FORBIDDEN: dict[str, tuple[str, ...]] = {
    "gateway": ("local_engine", "dashboards", "migrations", "torch", "sklearn", "litellm"),
    "backends": ("gateway", "classifier", "local_engine", "dashboards", "fastapi", "sqlalchemy", "redis", "torch"),
    "classifier": ("gateway", "backends", "local_engine", "dashboards", "fastapi", "sqlalchemy", "redis"),
    "local_engine": ("gateway", "backends", "classifier", "migrations", "dashboards", "benchmarks"),
    "dashboards": ("gateway", "backends", "classifier", "local_engine", "migrations", "sqlalchemy"),
    "native": ("gateway", "backends", "classifier", "local_engine", "migrations", "dashboards", "torch", "numpy"),
    **{f"gateway.{room}": (*IO, *EDGES) for room in ("routing", "pricing", "economics")},
    **{f"gateway.{room}": (*EDGES, *DATABASES, "gateway.pipeline") for room in (*INNER, "upstreams")},
    "gateway.pipeline": (*EDGES, *DATABASES),
    "backends.http": ("backends.formats", "backends.endpoints"),
    "backends.formats": ("backends.endpoints",),
    "gateway.storage.rows": ("gateway.storage.sums", "gateway.storage.sql", "gateway.storage.redis"),
    "gateway.storage.sums": ("gateway.storage.sql", "gateway.storage.redis"),
    "gateway.storage.redis": ("gateway.storage.sums", "gateway.storage.sql", "gateway.storage.tables"),
    "gateway.storage.sql": ("gateway.storage.redis",),
    "local_engine.scheduler": ("torch",),
    "local_engine.block_pool": ("torch",),
    "local_engine.kv_cache_manager": ("torch",),
}
# One file each, imported only when chosen.
EXCEPTIONS = {
    ("backends.litellm_backend", "litellm"),
}
# Rooms that only some module of the gateway may reach.
ONLY = {
    "migrations": ("gateway.storage.tables",),
}
# It may have torch, triton and transformers alone, and is measured all the same.
ABSENT_ON_A_GPU_MACHINE = ("gguf", "llguidance", "msgspec", "uvicorn", "fastapi", "aiohttp", "pydantic")
# What is not loaded with a module, by whatever it imports: each costs a process that does not need it memory and CPU.
NOT_WITH: dict[str, tuple[str, ...]] = {
    # The first process of a fleet, which serves no requests: 0.7 s of CPU and 23 MB.
    "gateway.cli.serve": ("fastapi", "gateway.pipeline"),
    # It loads these later, without a search for cycles: a fifth of its CPU until it is ready.
    "gateway.worker.__main__": ("fastapi", "gateway.pipeline"),
    "gateway.api.assemble": ("gateway.telemetry.spans", "opentelemetry"),
    # Every gateway and worker starts one: 0.2 s of CPU and 18 MB.
    "gateway.storage.sink_process": ("numpy", "sqlalchemy.orm", "sqlalchemy.ext.asyncio"),
    "backends.litellm_backend": ("litellm",),
    "local_engine.cli": ("torch",),
    # Serving a folder without constraints needs neither.
    "local_engine.assembly": ("gguf", "llguidance"),
    "local_engine.server.openai_server": ("gguf", "llguidance"),
    "local_engine.scheduler": ("torch", *ABSENT_ON_A_GPU_MACHINE),
    "local_engine.kv_cache_manager": ("torch", *ABSENT_ON_A_GPU_MACHINE),
    # On a CPU the engine does not use its 700 MB.
    "benchmarks.engine_gpu.__main__": ABSENT_ON_A_GPU_MACHINE,
    "local_engine.kernels.gpu_assembly": ABSENT_ON_A_GPU_MACHINE,
    "local_engine.cuda_graph": ("triton",),
    "local_engine.kernels.reference": ("triton",),
}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, Path]:
    return {module_name(path): path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))}


@cache
def imported(name: str, path: Path) -> dict[str, bool]:
    """Every module that a file imports, also in functions and TYPE_CHECKING blocks, as absolute names; and whether the
    import runs as soon as the file is imported."""
    found: dict[str, bool] = {}
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node, at_once in _statements(ast.parse(path.read_text(encoding="utf-8"))):
        for target in _targets(node, package):
            found[target] = found.get(target, False) or at_once
    return found


def _statements(parent: ast.AST, at_once: bool = True) -> Iterator[tuple[ast.AST, bool]]:
    """All statements of a file, and whether they run when it is imported: not in a function."""
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield node, at_once
            yield from _statements(node, at_once and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def _targets(node: ast.AST, package: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            anchor = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*anchor, base]).rstrip(".")
        for alias in node.names:
            full = f"{base}.{alias.name}"
            yield full if full in modules() else base


def loaded_with(name: str) -> set[str]:
    """All that an import of this module loads, of ours with what it imports in turn."""
    loaded, waiting = set[str](), [name]
    while waiting:
        one = waiting.pop()
        if one in loaded:
            continue
        loaded.add(one)
        if path := modules().get(one):
            waiting += [one.rpartition(".")[0], *(target for target, at_once in imported(one, path).items() if at_once)]
    return loaded


def is_within(module: str, room: str) -> bool:
    return module == room or module.startswith(room + ".")


@pytest.mark.parametrize("who", FORBIDDEN)
def test_a_room_never_imports_what_it_must_not(who: str) -> None:
    wrong = [
        f"{name} imports {target}"
        for name, path in modules().items()
        if is_within(name, who)
        for target in imported(name, path)
        for banned in FORBIDDEN[who]
        if is_within(target, banned) and (name, banned) not in EXCEPTIONS
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", NOT_WITH)
def test_a_module_does_not_load_what_is_seldom_needed(name: str) -> None:
    """By the source, which costs no process. What libraries import is not followed."""
    assert name in modules()
    assert not [one for one in loaded_with(name) for costly in NOT_WITH[name] if is_within(one, costly)]


@pytest.mark.parametrize("who", ONLY)
def test_a_room_imports_of_the_gateway_only_what_it_may(who: str) -> None:
    wrong = [
        f"{name} imports {target}"
        for name, path in modules().items()
        if is_within(name, who)
        for target in imported(name, path)
        if any(is_within(target, room) for room in ROOMS if room != who) and not target.startswith(ONLY[who])
    ]
    assert not wrong, "\n".join(wrong)


Graph = dict[str, set[str]]


def import_graph() -> Graph:
    return {
        name: {target for target in imported(name, path) if target in modules() and target != name}
        for name, path in modules().items()
    }


def room_of(name: str) -> str:
    """In the gateway, its folder, or a file next to those; elsewhere the top-level package."""
    depth = 2 if is_within(name, "gateway") else 1
    return ".".join(name.split(".")[:depth])


def require_no_cycle(graph: Graph) -> None:
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, "import cycle: " + " -> ".join([*trail[trail.index(name) :], name])
        if name not in done:
            for target in sorted(graph[name]):
                visit(target, (*trail, name))
            done.add(name)

    for name in sorted(graph):
        visit(name, ())


def test_no_module_imports_itself_by_a_detour() -> None:
    require_no_cycle(import_graph())


def test_no_room_imports_itself_by_a_detour() -> None:
    rooms: Graph = {}
    for name, targets in import_graph().items():
        reached = rooms.setdefault(room_of(name), set())
        reached.update(room_of(target) for target in targets)
    for room, reached in rooms.items():
        reached.discard(room)
    require_no_cycle(rooms)
