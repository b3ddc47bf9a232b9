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
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common import checks
from common import environment as variables
from common.errors import BadInput, Forbidden
from workers.host import egress
from workers.pipeline.declaration import fields
from workers.plants.foreign.declared import login
from workers.plants.foreign.declared.json_path import JsonPath, read_path
from workers.plants.foreign.declared.login import Login, read_login
from workers.plants.foreign.declared.redis_value import read_command

MAX_QUERY = 4_000
FRESH_SECONDS = 300.0
MAX_TITLE, MAX_UNIT = 80, 20
SOURCES = ("promql", "sql", "redis", "url", "file")
SHARED = ("title", "unit", "times", "counter", "every_seconds")
KEYS = {
    "promql": ("promql", "prometheus", *login.KEYS),
    "sql": ("sql", "database"),
    "redis": ("redis", "server"),
    "url": ("url", "json", *login.KEYS),
    "file": ("file", "json", "fresh_seconds"),
}
# First words of a query: the database refuses to write, and this check reports it earlier.
SQL_BEGINS = ("select", "with", "values", "table")


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


def read_server(document: Any, where: str) -> Server:
    """Read an address, or {url, secret_environment, secret_as}."""
    given = {"url": document} if isinstance(document, str) else document
    fields.check_mapping(given, where, ("url", *login.KEYS), required=("url",))
    return Server(_read_url(given["url"], where), read_login(given, where))


def read_sensor(name: str, document: Any, where: str, server: Server | None) -> DeclaredSensor:
    """Read a sensor. server: the plant's own, if it has one. Raise `BadInput`, naming the field."""
    given = list(document) if isinstance(document, Mapping) else []
    kinds = [source for source in SOURCES if source in given]
    if len(kinds) != 1:
        raise BadInput(where, f"must have exactly one of {', '.join(SOURCES)}")
    fields.check_mapping(document, where, (*KEYS[kinds[0]], *SHARED), required=(kinds[0],))
    return DeclaredSensor(
        name,
        _SOURCES[kinds[0]](document, where, server),
        _read_short_text(document, "title", where, MAX_TITLE),
        _read_short_text(document, "unit", where, MAX_UNIT),
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


def _read_promql_source(document: Mapping[str, Any], where: str, server: Server | None) -> PromqlSource:
    own = server
    if "prometheus" in document:
        own = read_server(
            {"url": document["prometheus"]} | {key: document[key] for key in login.KEYS if key in document},
            f"{where}.prometheus",
        )
    if own is None:
        raise BadInput(f"{where}.prometheus", "is missing; set the server's address here or for the plant")
    return PromqlSource(own, fields.validate_text(document["promql"], f"{where}.promql", MAX_QUERY))


def _read_sql_source(document: Mapping[str, Any], where: str, server: Server | None) -> SqlSource:
    name = fields.validate_text(document.get("database"), f"{where}.database")
    egress.check_secret_name(name, f"{where}.database")
    query = fields.validate_text(document["sql"], f"{where}.sql", MAX_QUERY).strip().rstrip(";")
    if not query.lower().startswith(SQL_BEGINS) or ";" in query:
        raise BadInput(f"{where}.sql", f"must be one query that starts with {', '.join(SQL_BEGINS)}")
    return SqlSource(name, query)


def _redis(document: Mapping[str, Any], where: str, server: Server | None) -> RedisSource:
    name = fields.validate_text(document.get("server"), f"{where}.server")
    egress.check_secret_name(name, f"{where}.server")
    command = fields.validate_text(document["redis"], f"{where}.redis", MAX_QUERY)
    return RedisSource(name, read_command(command, f"{where}.redis"))


def _read_http_source(document: Mapping[str, Any], where: str, server: Server | None) -> HttpSource:
    path = read_path(document.get("json"), f"{where}.json")
    return HttpSource(_read_url(document["url"], f"{where}.url"), path, read_login(document, where))


def _read_file_source(document: Mapping[str, Any], where: str, server: Server | None) -> FileSource:
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


def _read_url(value: Any, where: str) -> str:
    text = fields.validate_text(value, where, 1_000)
    egress.check_url(text, where)
    return text


def _read_short_text(document: Mapping[str, Any], key: str, where: str, most: int) -> str:
    value = document.get(key, "")
    return fields.validate_text(value, f"{where}.{key}", most) if value != "" else ""
