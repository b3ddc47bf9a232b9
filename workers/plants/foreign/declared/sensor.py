"""A sensor of a declared plant: where one number comes from, and how it is converted.

| source | keys | the number |
|---|---|---|
| PromQL | `promql`, `prometheus` (if not the plant's) | a scalar or the only series; NaN: unknown |
| SQL | `sql`, `database` (variable with the address) | the only value; no row, NULL: unknown |
| Redis | `redis` (a command), `server` (variable with the address) | the answer; nothing: unknown |
| JSON over HTTP | `url`, `json` (JMESPath) | the value at the path; null: unknown |
| a file | `file`, `json` (JMESPath; without it the file is the number), `fresh_seconds` | likewise |

Every sensor also takes: `title`, `unit`, `times` (a factor, such as 0.001 for ms), `counter` (true: the number only
grows, and the sensor is its increase per second), and `every_seconds` (the interval of readings). HTTP sources take
`secret_environment` and `secret_as`. A file that was written longer ago than `fresh_seconds` (300; 0: no limit) gives
no value: its writer may be gone.

A JMESPath expression and its document come from outside. So an expression has at most MAX_PATH characters. Its lists
and objects turn one value into at most MAX_GROWTH values. It joins no texts (a sensor is a number). It ends after
MAX_STEPS steps, where each value of a list, object, or text that it makes is a step.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import jmespath
from jmespath.exceptions import JMESPathError
from jmespath.visitor import TreeInterpreter

from common import checks
from common import environment as variables
from common.errors import BadInput, Forbidden
from workers.host import egress
from workers.pipeline.declaration import fields
from workers.plants.foreign.declared import servers
from workers.plants.foreign.declared.servers import Login, read_login
from workers.plants.foreign.declared.sources import read_command
from workers.plants.plant import InvalidPlantResponse

MAX_PATH = 500
MAX_GROWTH = 16
MAX_STEPS = 1_000_000
MAKES_TEXT = frozenset({"join", "to_string"})
GROWS = frozenset({"multi_select_list", "multi_select_dict"})
MAX_QUERY = 4_000
FRESH_SECONDS = 300.0
MAX_TITLE, MAX_UNIT = 80, 20
SOURCES = ("promql", "sql", "redis", "url", "file")
SHARED = ("title", "unit", "times", "counter", "every_seconds")
KEYS = {
    "promql": ("promql", "prometheus", *servers.KEYS),
    "sql": ("sql", "database"),
    "redis": ("redis", "server"),
    "url": ("url", "json", *servers.KEYS),
    "file": ("file", "json", "fresh_seconds"),
}
# First words of a query: the database refuses to write, and this check reports it earlier.
SQL_BEGINS = ("select", "with", "values", "table")


@dataclass(frozen=True)
class JsonPath:
    """A path; the empty path is the document itself."""

    text: str = ""

    @cached_property
    def _parsed(self) -> Mapping[str, object]:
        parsed: Mapping[str, object] = jmespath.compile(self.text).parsed
        return parsed

    def read(self, document: object) -> object:
        """Return the value at the path. Raise `InvalidPlantResponse` if the path does not match the document."""
        if not self.text:
            return document
        try:
            return _Interpreter().visit(self._parsed, document)
        except _StepLimitExceeded:
            raise InvalidPlantResponse(f"{self.text[:80]} takes more than {MAX_STEPS} steps") from None
        except (JMESPathError, ArithmeticError, RecursionError, TypeError) as error:
            # The message of such an error may quote the whole document.
            name = getattr(error, "function_name", "")
            what = f"{name}() can't be applied to {error.actual_type}" if hasattr(error, "actual_type") else ""
            said = what or type(error).__name__
            raise InvalidPlantResponse(f"{self.text[:80]} does not match the response: {said}") from None


def read_path(text: object, where: str) -> JsonPath:
    """Read a path. Raise `BadInput`, saying what is wrong."""
    path = JsonPath(fields.validate_text(text, where, MAX_PATH))
    try:
        nodes = list(_iterate_nodes(jmespath.compile(path.text).parsed))
    except JMESPathError as error:
        raise BadInput(where, f"is not valid JMESPath: {str(error).splitlines()[0][:200]}") from None
    except RecursionError:
        raise BadInput(where, "is not valid JMESPath: it is nested too deeply") from None
    for node in nodes:
        if node["type"] == "function_expression" and node["value"] in MAKES_TEXT:
            raise BadInput(where, f"must not use {node['value']}(), because a sensor must return a number")
    growth = prod(max(1, len(node["children"])) for node in nodes if node["type"] in GROWS)
    if growth > MAX_GROWTH:
        raise BadInput(where, f"must return at most {MAX_GROWTH} values for each input value, not {growth}")
    return path


def _iterate_nodes(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield node
    for child in node["children"]:
        if isinstance(child, Mapping):
            yield from _iterate_nodes(child)


class _StepLimitExceeded(Exception):  # noqa: N818
    """An evaluation that took MAX_STEPS."""


class _Interpreter(TreeInterpreter):
    """An interpreter that counts its steps."""

    def __init__(self) -> None:
        super().__init__()
        self._left = MAX_STEPS

    def visit(self, node: Any, *args: object, **named: object) -> Any:
        result = super().visit(node, *args, **named)
        self._left -= 1 + (len(result) if isinstance(result, list | dict | str) else 0)
        if self._left < 0:
            raise _StepLimitExceeded
        return result


@dataclass(frozen=True)
class Server:
    """A Prometheus server."""

    url: str
    login: Login = field(default_factory=Login)


@dataclass(frozen=True)
class PromqlSource:
    server: Server
    query: str

    def describe(self) -> str:
        return f"PromQL at {self.server.url}: {self.query}"


@dataclass(frozen=True)
class SqlSource:
    """A SQL query. database: the variable that contains the address."""

    database: str
    query: str

    def describe(self) -> str:
        return f"SQL at {self.database}: {self.query}"


@dataclass(frozen=True)
class RedisSource:
    """A Redis command. server: the variable that contains the address."""

    server: str
    command: tuple[str, ...]

    def describe(self) -> str:
        return f"{' '.join(self.command)} at {self.server}"


@dataclass(frozen=True)
class HttpSource:
    url: str
    path: JsonPath
    login: Login = field(default_factory=Login)

    def describe(self) -> str:
        return f"GET {self.url}, {self.path.text}"


@dataclass(frozen=True)
class FileSource:
    """A file. fresh_seconds: an older file gives no value; 0: no limit."""

    file: str
    path: JsonPath
    fresh_seconds: float = FRESH_SECONDS

    def describe(self) -> str:
        return f"file {self.file}" + (f", {self.path.text}" if self.path.text else "")


Source = PromqlSource | SqlSource | RedisSource | HttpSource | FileSource


@dataclass(frozen=True)
class DeclaredSensor:
    """One number: its source, and how it is converted."""

    name: str
    source: Source
    title: str = ""
    unit: str = ""
    times: float = 1.0
    counter: bool = False
    every_seconds: float = 0.0


def read_server(document: object, where: str) -> Server:
    """Read an address, or {url, secret_environment, secret_as}."""
    given = {"url": document} if isinstance(document, str) else document
    given = fields.check_mapping(given, where, ("url", *servers.KEYS), required=("url",))
    return Server(_read_url(given["url"], where), read_login(given, where))


def read_sensor(name: str, document: object, where: str, server: Server | None) -> DeclaredSensor:
    """Read a sensor. server: the plant's own, if it has one. Raise `BadInput`, naming the field."""
    given = list(document) if isinstance(document, Mapping) else []
    kinds = [source for source in SOURCES if source in given]
    if len(kinds) != 1:
        raise BadInput(where, f"must have exactly one of {', '.join(SOURCES)}")
    document = fields.check_mapping(document, where, (*KEYS[kinds[0]], *SHARED), required=(kinds[0],))
    title, unit = (
        fields.validate_text(document[key], f"{where}.{key}", most) if document.get(key, "") != "" else ""
        for key, most in (("title", MAX_TITLE), ("unit", MAX_UNIT))
    )
    return DeclaredSensor(
        name,
        _SOURCES[kinds[0]](document, where, server),
        title,
        unit,
        float(checks.accept_number(-1e12, 1e12).validate(document.get("times", 1.0), f"{where}.times")),
        bool(checks.FLAG.validate(document.get("counter", False), f"{where}.counter")),
        fields.validate_seconds(document.get("every_seconds", 0.0), f"{where}.every_seconds"),
    )


def resolve_file(name: str, where: str) -> Path:
    """Return the path of a file, with every link resolved.

    Raise `Forbidden` for a file outside of the folders that an administrator allows.
    """
    folders = [Path(word).resolve() for word in variables.PLANT_FILES.get_words()]
    path = Path(name).resolve()
    if not Path(name).is_absolute() or not any(path.is_relative_to(folder) for folder in folders):
        allowed = ", ".join(str(folder) for folder in folders) or "none"
        raise Forbidden(
            where, f"must be a file in a folder of {variables.PLANT_FILES.name} ({allowed}), not {name[:200]!r}"
        )
    return path


def _read_promql_source(document: Mapping[str, object], where: str, server: Server | None) -> PromqlSource:
    own = server
    if "prometheus" in document:
        own = read_server(
            {"url": document["prometheus"]} | {key: document[key] for key in servers.KEYS if key in document},
            f"{where}.prometheus",
        )
    if own is None:
        raise BadInput(f"{where}.prometheus", "is missing; set the server's address here or for the plant")
    return PromqlSource(own, fields.validate_text(document["promql"], f"{where}.promql", MAX_QUERY))


def _read_sql_source(document: Mapping[str, object], where: str, server: Server | None) -> SqlSource:
    name = fields.validate_text(document.get("database"), f"{where}.database")
    egress.check_secret_name(name, f"{where}.database")
    query = fields.validate_text(document["sql"], f"{where}.sql", MAX_QUERY).strip().rstrip(";")
    if not query.lower().startswith(SQL_BEGINS) or ";" in query:
        raise BadInput(f"{where}.sql", f"must be one query that starts with {', '.join(SQL_BEGINS)}")
    return SqlSource(name, query)


def _redis(document: Mapping[str, object], where: str, server: Server | None) -> RedisSource:
    name = fields.validate_text(document.get("server"), f"{where}.server")
    egress.check_secret_name(name, f"{where}.server")
    command = fields.validate_text(document["redis"], f"{where}.redis", MAX_QUERY)
    return RedisSource(name, read_command(command, f"{where}.redis"))


def _read_http_source(document: Mapping[str, object], where: str, server: Server | None) -> HttpSource:
    path = read_path(document.get("json"), f"{where}.json")
    return HttpSource(_read_url(document["url"], f"{where}.url"), path, read_login(document, where))


def _read_file_source(document: Mapping[str, object], where: str, server: Server | None) -> FileSource:
    name = fields.validate_text(document["file"], f"{where}.file", 1_000)
    resolve_file(name, f"{where}.file")
    path = read_path(document["json"], f"{where}.json") if "json" in document else JsonPath()
    fresh_seconds = fields.validate_seconds(document.get("fresh_seconds", FRESH_SECONDS), f"{where}.fresh_seconds")
    return FileSource(name, path, fresh_seconds)


_Read = Callable[[Mapping[str, Any], str, Server | None], Source]
_SOURCES: Mapping[str, _Read] = {
    "promql": _read_promql_source,
    "sql": _read_sql_source,
    "redis": _redis,
    "url": _read_http_source,
    "file": _read_file_source,
}


def _read_url(value: object, where: str) -> str:
    text = fields.validate_text(value, where, 1_000)
    egress.check_url(text, where)
    return text
