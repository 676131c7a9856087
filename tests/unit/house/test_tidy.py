"""Rules for the source code of the project. Violations are listed."""

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = ("state", "connectors", "streams", "sandbox")
PLACES = (*PACKAGES, "bench", "tests")
FILE_LINES, FUNCTION_LINES = 600, 70
MEDIAN_FILE_LINES, MEDIAN_FUNCTION_LINES = 200, 10
ANY = 100
"""Maximum number of lines of `streams/` with the type Any."""
CATCHES_ALL = "streams/runtime/supervisor.py"
CLOCKS_AND_CHANCE = {"time", "datetime", "random", "secrets", "uuid"}
STARTED = {
    "trueup/__init__.py",
    "streams/cli/main.py",
    "streams/archive.py",
    "streams/docs.py",
    "connectors/embedded/relock.py",
    "sandbox/servers/s3.py",
}
LOADED = re.compile(r"^(trueup\.[\w.]+):\w+$|^from (trueup\.[\w.]+) import", re.MULTILINE)
WITHOUT_CALLER = {
    "sandbox/servers/kafka_cluster.py": "several brokers, which tests stop one by one",
    "sandbox/servers/security.py": "authenticated listeners of brokers",
}
"""Modules that only tests use, and the reason to keep each."""
LIBRARIES_CALL = frozenset(
    [
        "_alter_configs_process_responses",
        "_parse_group_offsets",
        "_read_header",
        "consumeMessage",
        "handle_expect_100",
        "handle_read",
        "repr_int",
        "werkzeugs",
        "login_form",
        "get_",
        "set_",
        "streamReader",
        "initialOffset",
        "getDefaultReadLimit",
        "prepareForTriggerAvailableNow",
        "reportLatestOffset",
        "onQueryStarted",
        "onQueryProgress",
        "onQueryIdle",
        "onQueryTerminated",
        "init",
        "handleInputRows",
    ]
)
"""Functions that libraries call by their names, or by a decorator."""
FOR_TESTS = {
    "ask_name_servers": "deletes topics, as mqadmin does",
    "end_kept": "ends the session that a process of Spark keeps",
}
"""Functions that only tests call, and what for."""

# Assembled from parts, so that this file does not match its own patterns.
MACHINE_PATHS = re.compile(
    r"(?<![\w.$}~])/(?:" + "|".join(("work", "root", "tmp", "home/[a-z]+")) + r")(?:/|\b(?![\w-]))"
)
HOSTS = re.compile(
    "|".join(
        re.escape(f"{name}.{end}")
        for name, end in (
            ("pypi", "org"),
            ("pythonhosted", "org"),
            ("repo1.maven", "org"),
            ("repo.maven.apache", "org"),
            ("npmjs", "org"),
            ("crates", "io"),
            ("docker", "io"),
            ("ghcr", "io"),
            ("proxy.golang", "org"),
            ("deb.debian", "org"),
        )
    )
)
SPARED = re.compile(r"# fmt" + r": (?:skip|off)")
LEFT_OVERS = re.compile(r"\b(?:" + "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3, "HA" + "CK")) + r")\b")


def sources(*places: str) -> list[Path]:
    return [path for place in places for path in sorted((ROOT / place).rglob("*.py"))]


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def trees(*places: str) -> Iterator[tuple[str, ast.Module]]:
    for path in sources(*places):
        yield shown(path), ast.parse(path.read_text())


def defined() -> Iterator[tuple[str, str]]:
    """Location and name of every function and class of the product."""
    for place, tree in trees(*PACKAGES):
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield f"{place}:{node.lineno}", node.name


def functions(*places: str) -> Iterator[tuple[str, int]]:
    """Location and number of lines of every function."""
    for name, tree in trees(*places):
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{name}:{node.lineno} {node.name}", (node.end_lineno or 0) - node.lineno + 1


def tracked() -> list[Path]:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


def texts() -> Iterator[tuple[str, str]]:
    """Name and content of every tracked text file."""
    for path in tracked():
        try:
            yield shown(path), path.read_text()
        except UnicodeDecodeError:
            continue


def matches(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()[:100]}"
        for name, text in texts()
        for number, line in enumerate(text.splitlines(), start=1)
        if pattern.search(line)
    ]


def test_no_file_is_too_long() -> None:
    lengths = {shown(path): len(path.read_text().splitlines()) for path in sources(*PLACES)}
    assert {name: lines for name, lines in lengths.items() if lines > FILE_LINES} == {}


def test_no_function_is_too_long() -> None:
    assert [(where, lines) for where, lines in functions(*PLACES) if lines > FUNCTION_LINES] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_files_are_short_as_a_rule(package: str) -> None:
    assert median(len(path.read_text().splitlines()) for path in sources(package)) <= MEDIAN_FILE_LINES


@pytest.mark.parametrize("package", PACKAGES)
def test_functions_are_short_as_a_rule(package: str) -> None:
    assert median(lines for _, lines in functions(package)) <= MEDIAN_FUNCTION_LINES


def test_only_the_supervisor_catches_everything() -> None:
    broad = [
        f"{name}:{node.lineno}"
        for name, tree in trees(*PLACES)
        for node in ast.walk(tree)
        if isinstance(node, ast.ExceptHandler) and _hides_everything(node) and name != CATCHES_ALL
    ]
    assert broad == []


def test_only_the_supervisor_starts_threads_of_the_application() -> None:
    """The servers of the journal and the command line run in processes of their own."""
    aside = ("connectors/embedded/", "streams/cli/", "streams/terminal/", "streams/runtime/supervisor.py")
    found = [
        f"{name}:{node.lineno}"
        for name, tree in trees("state", "connectors", "streams")
        if not name.startswith(aside)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", getattr(node.func, "id", "")) in ("Thread", "Timer", "start_new_thread")
    ]
    assert found == []


def _hides_everything(handler: ast.ExceptHandler) -> bool:
    """Whether the handler catches every exception and does not raise it again."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    broad = any(k is None or (isinstance(k, ast.Name) and k.id in ("Exception", "BaseException")) for k in kinds)
    last = handler.body[-1]
    return broad and not (isinstance(last, ast.Raise) and last.exc is None)


def test_the_core_has_no_clock_and_throws_no_dice() -> None:
    found = []
    for name, tree in trees("state"):
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
                found += [f"{name}:{node.lineno}" for m in modules if m.partition(".")[0] in CLOCKS_AND_CHANCE]
            elif isinstance(node, ast.Attribute) and node.attr == "random":
                found.append(f"{name}:{node.lineno}")
    assert found == []


def test_no_test_is_left_out() -> None:
    names = ("skip", "skipif", "xfail", "importorskip")
    found = [
        f"{name}:{node.lineno}"
        for name, tree in trees("tests")
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in names
    ]
    assert found == []


def test_no_unit_test_sleeps() -> None:
    found = [
        f"{name}:{node.lineno}"
        for name, tree in trees("tests/unit", "tests/property", "tests/simulation")
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "sleep"
    ]
    assert found == []


def test_every_module_is_used() -> None:
    """Reachable from an entry point: commands, maintainer tools, benchmarks. Use by tests does not count."""
    uses = {name: _used(tree) for name, tree in trees(*PACKAGES, "trueup", "bench")}
    reached, left = set[str](), [name for name in uses if name in STARTED or name.startswith("bench/")]
    while left:
        name = left.pop()
        if name not in reached:
            reached.add(name)
            left += [module for module in uses if module.removesuffix(".py").replace("/", ".") in uses[name]]
    modules = {name for name in uses if not name.endswith(("/__init__.py", "/__main__.py"))}
    assert sorted(modules - reached) == sorted(WITHOUT_CALLER)


def test_the_guide_of_each_package_of_the_core_names_its_modules() -> None:
    unnamed = [
        shown(module)
        for module in sources("state")
        if len([*module.parent.glob("*.py")]) > 2 and f"``{module.stem}``" not in _guide(module.parent)
    ]
    assert [name for name in unnamed if not name.endswith("__init__.py")] == []


def test_no_guide_names_a_module_that_is_gone() -> None:
    guides = {init.parent: _guide(init.parent) for init in sources(*PACKAGES) if init.stem == "__init__"}
    named = {room: re.findall(r"^- ``(\w+)``|^\d\. ``(\w+)``", guide, re.MULTILINE) for room, guide in guides.items()}
    gone = [
        (shown(room), name)
        for room, names in named.items()
        for name in map("".join, names)
        if not (room / f"{name}.py").exists() and not (room / name).is_dir()
    ]
    assert gone == []


def _guide(room: Path) -> str:
    return ast.get_docstring(ast.parse((room / "__init__.py").read_text())) or ""


def _used(tree: ast.Module) -> set[str]:
    """Names of imported modules, and of modules that are loaded by name."""
    used: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            used |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            used |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            used |= {name for names in LOADED.findall(node.value) for name in names if name}
    return {name.removeprefix("trueup.") for name in used}


def test_the_formatter_formats_everything() -> None:
    assert matches(SPARED) == []


def test_few_lines_leave_a_type_open() -> None:
    """JSON, Avro values and untyped libraries need some; most have a type."""
    lines = [line for path in sources("streams") for line in path.read_text().splitlines()]
    assert sum(bool(re.search(r"\bAny\b", line)) for line in lines) <= ANY


def test_nothing_names_a_machine() -> None:
    assert matches(MACHINE_PATHS) == []


def test_nothing_names_a_registry() -> None:
    assert matches(HOSTS) == []


def test_nothing_is_left_for_later() -> None:
    assert matches(LEFT_OVERS) == []


def test_everything_has_a_use_outside_of_tests() -> None:
    words = Counter(word for path in sources(*PACKAGES, "bench") for word in re.findall(r"\w+", path.read_text()))
    kept = LIBRARIES_CALL | FOR_TESTS.keys()
    unused = [f"{place} {name}" for place, name in defined() if words[name] == 1 and name not in kept]
    assert [each for each in unused if not each.rpartition(" ")[2].startswith("__")] == []


def test_what_is_kept_without_a_use_exists() -> None:
    assert (LIBRARIES_CALL | FOR_TESTS.keys()) - {name for _, name in defined()} == set()
