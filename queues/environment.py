"""The environment variables of a process: each one declared once, with its type, default, and meaning.

No other module reads the environment. Code that needs a value reads its variable here, and code that passes
values on to a process takes them from PROCESS (`workers.host.environment` says which). An empty variable
counts as not set.
"""

import os
import re
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from queues.errors import BadInput
from queues.text.numbers import decimal_number
from queues.text.words import split_words

# of this process
PROCESS: MutableMapping[str, str] = os.environ
LOCAL_CONTROL = "redis://127.0.0.1:6379/0"  # if no setting says where the control server is
MAX_NUMBER = 10
MIN_SECONDS, MAX_SECONDS = 0.1, 3600.0


@dataclass(frozen=True)
class Variable:
    """A text variable.

    default: its value if it is not set. unset: what that means, in words. secret: its value appears in no
    message and no page, and in no process that does not use it.
    """

    name: str
    meaning: str
    default: str = ""
    unset: str = ""
    secret: bool = False

    def is_set(self, environment: Mapping[str, str] = PROCESS) -> bool:
        """Return whether it has a value."""
        return bool(environment.get(self.name))

    def text(self, environment: Mapping[str, str] = PROCESS) -> str:
        """Return its value, or the default."""
        return environment.get(self.name) or self.default

    def words(self, environment: Mapping[str, str] = PROCESS) -> list[str]:
        """Return its words, separated by spaces. Quotes keep a word with spaces together."""
        return split_words(self.text(environment), self.name)


class Folder(Variable):
    """The path of a file or a folder."""

    def path(self, environment: Mapping[str, str] = PROCESS) -> Path:
        """Return the path, relative to where the process was started."""
        return Path(self.text(environment))


class Switch(Variable):
    """A switch: 1 or 0."""

    def is_on(self, default: bool = False, environment: Mapping[str, str] = PROCESS) -> bool:
        """Return whether it is on. Raises `BadInput` that names the variable."""
        text = self.text(environment)
        if text not in ("", "0", "1"):
            raise BadInput(self.name, "takes 1 or 0.")
        return text == "1" if text else default


@dataclass(frozen=True)
class OneOf(Variable):
    """One of some words."""

    words_known: tuple[str, ...] = ()

    def choice(self, environment: Mapping[str, str] = PROCESS) -> str:
        """Return the word. Raises `BadInput` that names the variable."""
        text = self.text(environment)
        if text not in self.words_known:
            raise BadInput(self.name, f"takes one of {', '.join(self.words_known)}.")
        return text


class WholeNumber(Variable):
    """A whole number from 0."""

    def whole(self, default: int | None = None, environment: Mapping[str, str] = PROCESS) -> int:
        """Return the number. Raises `BadInput` that names the variable."""
        text = self.text(environment)
        if text and not (text.isascii() and text.isdigit() and len(text) <= MAX_NUMBER):
            raise BadInput(self.name, f"takes a whole number of at most {MAX_NUMBER} digits.")
        return int(environment.get(self.name) or (self.default if default is None else default))


@dataclass(frozen=True)
class Seconds(Variable):
    """A duration from MIN_SECONDS to `most`, both inclusive, in seconds."""

    most: float = MAX_SECONDS

    def seconds(self, environment: Mapping[str, str] = PROCESS) -> float:
        """Return the duration. Raises `BadInput` that names the variable."""
        text = self.text(environment)
        value = decimal_number(text) or 0.0
        if not MIN_SECONDS <= value <= self.most:
            raise BadInput(
                self.name, f"takes seconds from {MIN_SECONDS:g} to {self.most:g}, not {text[:40]!r}"
            )
        return value


class Address(Variable):
    """The address of a service, http:// or https://, without user and password."""

    def address(self, environment: Mapping[str, str] = PROCESS) -> str:
        """Return the address. Raises `BadInput` that names the variable; it is not quoted, as it may contain
        a password.
        """
        text = self.text(environment)
        try:
            parts = urlsplit(text)
            well_formed = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            well_formed = False
        if text and (not well_formed or "@" in parts.netloc):
            raise BadInput(self.name, "takes an address such as http://collector:4318, without user.")
        return text


# The plant on this machine.
DATA = Folder(
    "WEIR_DATA",
    "where a local plant keeps its database, node files, checkpoints and secrets",
    ".weir",
    unset=".weir in the checkout; for an installed wheel, .weir in the home folder",
)
DATABASE_URL = Variable("DATABASE_URL", "the console's database", unset="SQLite in WEIR_DATA", secret=True)
STATEMENT_SECONDS = WholeNumber(
    "WEIR_STATEMENT_SECONDS", "how long a page's statement may take at PostgreSQL, s (0: unlimited)", "30"
)
LOCK_SECONDS = WholeNumber(
    "WEIR_LOCK_SECONDS",
    "how long a background process waits for a lock at PostgreSQL, s (0: unlimited)",
    "10",
)
TRANSACTION_SECONDS = WholeNumber(
    "WEIR_TRANSACTION_SECONDS",
    "how long a background process's transaction may be idle at PostgreSQL, s (0: unlimited)",
    "60",
)
REDIS_URL = Variable(
    "REDIS_URL",
    "the control server: broker, leases, live state; redis://…, or sentinel://user:password@host1,host2/NAME/0",
    unset="that of ./run's plant in WEIR_DATA",
    secret=True,
)
NODE_LOGIN = Variable(
    "WEIR_NODE_LOGIN", "user:password of this process at nodes whose URLs contain no login", secret=True
)
NODES = Variable(
    "WEIR_NODES", "for manage.py seed: the nodes, as name=redis://host:port/0, separated by spaces"
)
ADMIN_PASSWORD = Variable(
    "WEIR_ADMIN_PASSWORD",
    "for manage.py seed: the first administrator's password",
    unset="a random one",
    secret=True,
)

SUPERVISOR = Variable(
    "WEIR_SUPERVISOR",
    "set by ./run for its processes: the socket of their supervisor",
    unset="no supervisor",
)

# Production and access.
PRODUCTION = Switch("WEIR_PRODUCTION", "1 requires secrets from the environment and https cookies")
SECRET_KEY = Variable(
    "WEIR_SECRET_KEY",
    "signs sessions; required when WEIR_PRODUCTION is set",
    unset="stored in WEIR_DATA",
    secret=True,
)
AUDIT_KEY = Variable(
    "WEIR_AUDIT_KEY",
    "seals the audit log; of several words the first seals, and all verify",
    unset="WEIR_SECRET_KEY",
    secret=True,
)
WITHOUT_PAGES = Switch(
    "WEIR_WITHOUT_PAGES", "1: a production process that serves no pages, and needs no WEIR_SECRET_KEY"
)
HEARTBEAT_FILE = Variable(
    "WEIR_HEARTBEAT_FILE",
    "a file that a process touches every few seconds while it is alive, for health checks",
    unset="none",
)
HOSTS = Variable(
    "WEIR_HOSTS",
    "host names that requests may use, separated by spaces",
    "localhost 127.0.0.1 [::1] testserver",
    unset="localhost",
)
TRUSTED_PROXIES = Variable(
    "WEIR_TRUSTED_PROXIES", "networks of proxies whose X-Forwarded-For and -Proto are trusted"
)
HSTS_SECONDS = WholeNumber(
    "WEIR_HSTS_SECONDS",
    "how long browsers must use https only, s (0: the header is not sent)",
    unset="a year in production, otherwise 0",
)
HSTS_SUBDOMAINS = Switch(
    "WEIR_HSTS_SUBDOMAINS", "1: also for the host name's subdomains", unset="1 in production, otherwise 0"
)
SSL_REDIRECT = Switch(
    "WEIR_SSL_REDIRECT",
    "1 redirects http to https, except /healthz and /readyz",
    unset="1 in production, otherwise 0",
)
METRICS_LOOPBACK = Switch(
    "WEIR_METRICS_LOOPBACK",
    "1: /metrics needs no token from this machine",
    unset="0 in production, otherwise 1",
)
LIVE_SOCKETS_PER_PERSON = WholeNumber(
    "WEIR_LIVE_SOCKETS_PER_PERSON", "maximum number of live connections (/live/) per person", "20"
)
LIVE_SOCKETS = WholeNumber("WEIR_LIVE_SOCKETS", "maximum number of live connections per web process", "500")
CONNECTIONS_PER_ADDRESS = WholeNumber(
    "WEIR_CONNECTIONS_PER_ADDRESS",
    "connections of one client address (for IPv6: one /64) to a web process, except trusted proxies",
    "256",
)
CONNECTIONS = WholeNumber(
    "WEIR_CONNECTIONS",
    "maximum number of connections per web process; fewer if its limit of open files requires it",
    "4096",
)
EGRESS_ALLOW = Variable(
    "WEIR_EGRESS_ALLOW", "internal networks that addresses entered by people may lead to: 127.0.0.0/8 …"
)
HANDLERS = Variable(
    "WEIR_HANDLERS",
    "Python code that pages and the API may name (handlers of queues and jobs of tasks): packages, modules or"
    " whole paths, separated by commas",
    unset="none",
)
KUBERNETES_CA = Folder(
    "WEIR_KUBERNETES_CA",
    "a PEM file of the authorities that certificates of Kubernetes API servers are checked against",
    unset="the pod's own in its cluster, otherwise those that the host trusts",
)

# External login.
OIDC_ISSUER = Variable(
    "WEIR_OIDC_ISSUER",
    "the OpenID Connect provider, https://login.example.org/realm",
    unset="none: no login by OpenID Connect",
)
OIDC_CLIENT_ID = Variable(
    "WEIR_OIDC_CLIENT_ID", "Weir's name at the provider; its callback is /oidc/callback/"
)
OIDC_CLIENT_SECRET = Variable(
    "WEIR_OIDC_CLIENT_SECRET", "the secret with which Weir authenticates at the provider", secret=True
)
OIDC_ROLES = Variable(
    "WEIR_OIDC_ROLES",
    'groups and the roles that they give: ops=operator "Domain Admins"=administrator',
)
OIDC_GROUPS = Variable("WEIR_OIDC_GROUPS", "the claim that lists a user's groups", "groups")
OIDC_SCOPES = Variable("WEIR_OIDC_SCOPES", "the requested scopes", "openid profile email")

# Messages.
PUBLIC_URL = Variable(
    "WEIR_PUBLIC_URL",
    "the public address of the console; it is used in messages",
    "http://localhost:8000",
    unset="http://localhost:8000; ./run's own address",
)
CONSOLE_URL = Address(
    "WEIR_CONSOLE_URL",
    "where the observer checks whether the console answers (totals.console_available): http://web:8000",
    unset="none: not checked; ./run checks its own",
)
SMTP_URL = Variable(
    "WEIR_SMTP_URL",
    "the mail server: smtp://user:password@host:587 (smtps: TLS from the start)",
    unset="none: no mail",
    secret=True,
)
ALIVE_URL = Variable(
    "WEIR_ALIVE_URL",
    "a dead man's switch: an address that is called while observer, alerter, and delivery work",
    unset="no address is called",
    secret=True,
)
ALIVE_SECONDS = Seconds("WEIR_ALIVE_SECONDS", "how often WEIR_ALIVE_URL is called", "60")
MAIL_FROM = Variable("WEIR_MAIL_FROM", "the sender of e-mail", "weir@localhost")
LOG_LEVEL = OneOf(
    "WEIR_LOG_LEVEL",
    "the minimum level that is logged: DEBUG, INFO, WARNING or ERROR",
    "INFO",
    words_known=("DEBUG", "INFO", "WARNING", "ERROR"),
)
LOG_FORMAT = OneOf(
    "WEIR_LOG_FORMAT",
    "text: lines for people; json: one object per line",
    "text",
    words_known=("text", "json"),
)


# Traces and metrics for an OpenTelemetry collector: OpenTelemetry's own names, which its library reads too.
OTLP_ENDPOINT = Address(
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "the collector that traces and metrics are sent to (OTLP over HTTP): http://collector:4318",
    unset="none: nothing is sent",
)
OTLP_HEADERS = Variable(
    "OTEL_EXPORTER_OTLP_HEADERS",
    "headers for the collector: authorization=Bearer%20…,other=…",
    secret=True,
)
OTLP_CERTIFICATE = Variable(
    "OTEL_EXPORTER_OTLP_CERTIFICATE",
    "the file of the authority that signed the collector's certificate",
    unset="those that Python trusts",
)
OTLP_SERVICE = Variable("OTEL_SERVICE_NAME", "the service's name at the collector", "weir")
OTLP_RESOURCE = Variable(
    "OTEL_RESOURCE_ATTRIBUTES", "further attributes of every process: deployment.environment=test,…"
)
OTLP_SAMPLER = Variable(
    "OTEL_TRACES_SAMPLER",
    "which traces are sent: all of them, or a share with parentbased_traceidratio",
    "parentbased_always_on",
)
OTLP_SAMPLER_SHARE = Variable(
    "OTEL_TRACES_SAMPLER_ARG", "the share, from 0 to 1, for parentbased_traceidratio", unset="1"
)

# The pipeline and Spark.
SPARK_MASTER = Variable(
    "SPARK_MASTER",
    "the Spark cluster, spark://host:7077",
    unset="local[2] for the pipeline, local[1] for batch jobs",
)
SPARK_DRIVER_HOST = Variable(
    "SPARK_DRIVER_HOST",
    "the name under which a cluster reaches the driver",
    unset="this host's address on the route to the master",
)
SPARK_SECRET = Variable(
    "WEIR_SPARK_SECRET",
    "for a Spark cluster: the secret by which master, workers, and drivers authenticate one another",
    secret=True,
)
PIPELINE_APPLICATION = Folder(
    "WEIR_PIPELINE_APPLICATION",
    "the declaration (YAML) of the application",
    unset="the one that ships with Weir",
)
PIPELINE_TRIGGER_SECONDS = Seconds(
    "WEIR_PIPELINE_TRIGGER_SECONDS",
    "minimum time between the starts of two batches; a batch starts when there is something to process",
    "0.1",
)
PIPELINE_PATIENCE_SECONDS = Seconds(
    "WEIR_PIPELINE_PATIENCE_SECONDS", "how long a planned batch waits for an unavailable node", "30"
)
PIPELINE_STUCK_SECONDS = Seconds(
    "WEIR_PIPELINE_STUCK_SECONDS",
    "a process that has all it needs and finishes nothing for this long ends itself",
    "120",
)

# Other programs, and other consoles.
HERON = Variable("WEIR_HERON", "the command that scales a Heron topology", "heron")
PLANT_COMMANDS = Variable(
    "WEIR_PLANT_COMMANDS",
    "commands that declared plants may call, separated by ;, each given by the words that a call must start"
    " with, including options: /usr/local/bin/scale-pool; /usr/bin/systemctl start worker@",
    unset="none",
)
PLANT_TIMEOUT_SECONDS = Seconds(
    "WEIR_PLANT_TIMEOUT_SECONDS",
    "how long an attached plant may take to answer one request, at most 10; all sensors of a declared"
    " plant may take twice that, an order four times that, and a measurement is stale after three times that",
    "2",
    most=10.0,
)
PLANT_FILES = Variable(
    "WEIR_PLANT_FILES", "folders whose files declared plants may read, separated by spaces", unset="none"
)
URL = Variable("WEIR_URL", "for manage.py weir: a remote console", unset="this one")
TOKEN = Variable("WEIR_TOKEN", "for manage.py weir: the token for WEIR_URL", secret=True)

DECLARED: tuple[Variable, ...] = tuple(
    declared for declared in globals().values() if isinstance(declared, Variable)
)

# Families of variables, each read by a name that a role or a person gives.
PASSWORD_PREFIX = "WEIR_PASSWORD_"  # followed by a role's name
SECRET_PREFIX = "WEIR_SECRET_"  # of handlers, receivers, and plants
# The variables that people may name: Weir's own, except those of the console, since its signing key must
# never be sent.
SECRET_NAME = re.compile(rf"(?:{SECRET_PREFIX}(?!KEY)[A-Z0-9_]{{1,60}}|WEIR_[A-Z0-9_]{{1,60}}_TOKEN)\Z")
SECRET_HOSTS = "_HOSTS"  # follows the name of a secret: the hosts that it may be used at
PIPELINE_PREFIX = "WEIR_PIPELINE_"
OTLP_PREFIX = "OTEL_"  # of OpenTelemetry's library, which reads more of them than are declared here

# Set by Spark for the processes that it starts.
SPARK_CALLBACK_PORT = "PYTHON_WORKER_FACTORY_PORT"
SPARK_CALLBACK_SECRET = "PYTHON_WORKER_FACTORY_SECRET"
PYTHONPATH = "PYTHONPATH"


def secret_named(name: str, environment: Mapping[str, str] = PROCESS) -> str:
    """Return the secret under a name that a person has given and `egress.check_secret_name` accepts; "" if
    unset.

    Raises `BadInput` that names it if a byte of it is not UTF-8: it could not be sent, and Python's error
    would quote all of it. A byte order mark, which may come from the file that it was read from, is removed.
    """
    secret = environment.get(name, "").removeprefix("\ufeff") if name else ""
    if any(
        "\ud800" <= hidden_name <= "\udfff" for hidden_name in secret
    ):  # how Python represents such a byte
        raise BadInput(name, "contains a byte that is not UTF-8; set it again, in UTF-8.")
    return secret


def secret_hosts(name: str, environment: Mapping[str, str] = PROCESS) -> frozenset[str]:
    """Return the hosts that a secret may be used at, as its owner has set them in `NAME_HOSTS`.

    Empty if nothing is set: any host.
    """
    text = environment.get(f"{name}{SECRET_HOSTS}", "") if name else ""
    return frozenset(text.replace(",", " ").lower().split())


def rows() -> Iterator[tuple[str, str, str]]:
    """Return (name, default in words, meaning) of each variable, for the reference."""
    for variable in DECLARED:
        yield variable.name, variable.unset or variable.default or "none", variable.meaning
