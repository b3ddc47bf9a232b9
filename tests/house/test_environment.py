"""The environment has one reader, and what it reads is declared once, for code, documents and deployment."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from common import environment
from common.errors import BadInput
from console.help import reference
from tests.house import sources

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("common", "queues", "controllers", "workers", "console")
HOME = "common/environment.py"
NAMES = {each.name for each in environment.DECLARED}
# Of Compose alone: its own database, which of our images, and where the console is bound.
OF_COMPOSE = {
    *("POSTGRES_PASSWORD", "WEIR_DATABASE_PASSWORD", "WEIR_DATABASE_PASSWORD_WORKERS", "WEIR_VERSION"),
    *("WEIR_BIND", "WEIR_HTTP_PORT", "WEIR_HTTPS_PORT", "WEIR_TLS"),
}
FAMILIES = (environment.PASSWORD_PREFIX, environment.SECRET_PREFIX)
VARIABLE = re.compile(r"\b(WEIR_[A-Z_]+|REDIS_URL|DATABASE_URL|SPARK_MASTER|SPARK_DRIVER_HOST)\b")


@cache
def modules() -> list[tuple[str, tuple[ast.AST, ...]]]:
    """(file, its nodes)."""
    paths = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return [(path.relative_to(ROOT).as_posix(), sources.nodes(path)) for path in paths]


def reads(nodes: tuple[ast.AST, ...]) -> Iterator[int]:
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "environb", "getenv"):
            yield node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module == "os":
            yield from (node.lineno for each in node.names if each.name in ("environ", "getenv"))


def test_only_one_module_reads_the_environment():
    found = [f"{name}:{line}" for name, nodes in modules() if name != HOME for line in reads(nodes)]
    assert found == [], f"declare the variable in {HOME} and ask it"


def test_a_name_of_a_variable_is_spelled_in_one_module():
    found = [
        f"{name}:{node.lineno}"
        for name, nodes in modules()
        for node in nodes
        if name != HOME and isinstance(node, ast.Constant) and node.value in NAMES
    ]
    assert found == [], f"take the name from {HOME}"


def test_names_are_unique_and_each_has_its_meaning():
    assert len(NAMES) == len(environment.DECLARED)
    assert all(each.meaning for each in environment.DECLARED)


def test_the_reference_has_each_variable():
    page = reference.build_environment_page()
    assert [name for name in NAMES if f"| `{name}` |" not in page] == []


@pytest.mark.parametrize("file", [".env.example", "docker-compose.yml"])
def test_what_a_deployment_sets_is_declared(file):
    text = (ROOT / file).read_text(encoding="utf-8")
    unknown = {
        name
        for name in VARIABLE.findall(text)
        if name not in NAMES | OF_COMPOSE and not name.startswith(FAMILIES) and name not in FAMILIES
    }
    assert unknown == set()


def test_no_secret_has_a_value_in_the_example():
    lines = dict(
        line.split("=", 1)
        for line in (ROOT / ".env.example").read_text(encoding="utf-8").splitlines()
        if "=" in line and not line.startswith("#")
    )
    secrets = {each.name for each in environment.DECLARED if each.secret}
    held = {name for name, value in lines.items() if value and (name in secrets or name.startswith(FAMILIES))}
    assert held == set()


def test_what_is_empty_is_not_set():
    assert environment.LOG_LEVEL.get_text({"WEIR_LOG_LEVEL": ""}) == "INFO"
    assert not environment.REDIS_URL.is_set({"REDIS_URL": ""})
    assert environment.HSTS_SECONDS.get_whole_number(7, {"WEIR_HSTS_SECONDS": ""}) == 7
    assert environment.SSL_REDIRECT.is_on(True, {}) and not environment.SSL_REDIRECT.is_on(
        True, {"WEIR_SSL_REDIRECT": "0"}
    )


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "1e9", "soon"])
def test_seconds_are_refused_out_of_their_range(text):
    with pytest.raises(BadInput, match=r"WEIR_PIPELINE_TRIGGER_SECONDS: must be 0\.1 to 3600 s,"):
        environment.PIPELINE_TRIGGER_SECONDS.get_seconds({"WEIR_PIPELINE_TRIGGER_SECONDS": text})


@pytest.mark.parametrize("text", ["-1", "1.5", "²", "12345678901"])
def test_whole_numbers_are_refused_that_are_none(text):
    with pytest.raises(BadInput, match="must be a whole number with at most 10 digits"):
        environment.LIVE_SOCKETS.get_whole_number(environment={"WEIR_LIVE_SOCKETS": text})
