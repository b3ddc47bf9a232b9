"""Django settings. Everything that differs between machines comes from the environment.

| variable | default | meaning |
|---|---|---|
| WEIR_DATA | .weir | where a local plant keeps its database, node files, checkpoints and secrets |
| WEIR_SECRET_KEY | kept in WEIR_DATA | signs sessions; required when WEIR_PRODUCTION is set |
| WEIR_PRODUCTION | unset | 1 demands secrets from the environment and https cookies |
| WEIR_AUDIT_KEY | WEIR_SECRET_KEY | seals the audit; of several words the first seals, all verify |
| WEIR_WITHOUT_PAGES | unset | 1: a production process that serves no pages, and needs no WEIR_SECRET_KEY |
| WEIR_HOSTS | localhost | host names that may be asked for, separated by spaces |
| WEIR_TRUSTED_PROXIES | none | networks of proxies whose X-Forwarded-For and -Proto are believed |
| WEIR_OIDC_ISSUER | none: no such login | the OpenID Connect provider, https://login.example.org/realm |
| WEIR_OIDC_CLIENT_ID | none | Weir's name at the provider; its callback is /oidc/callback/ |
| WEIR_OIDC_CLIENT_SECRET | none | what Weir proves itself to the provider with |
| WEIR_OIDC_ROLES | none | groups and the roles they give: ops=operator admins=administrator |
| WEIR_OIDC_GROUPS | groups | the claim that lists somebody's groups |
| WEIR_OIDC_SCOPES | openid profile email | the scopes that are asked for |
| DATABASE_URL | SQLite in WEIR_DATA | the console's database |
| REDIS_URL | that of ./run's plant in WEIR_DATA | the control server: broker, leases, live state |
| WEIR_NODE_LOGIN | none | user:password of this process at nodes whose URLs bring no login |
| WEIR_SPARK_SECRET | none | for a Spark cluster: what master, workers and drivers know each other by |
| WEIR_NODES | none | for manage.py seed: the nodes, as name=redis://host:port/0, separated by spaces |
| WEIR_ADMIN_PASSWORD | a random one | for manage.py seed: the first administrator's password |
| WEIR_PUBLIC_URL | http://localhost:8000 | how the console is reached; it stands in messages |
| WEIR_SMTP_URL | none: no mail | the mail server: smtp://user:password@host:587 (smtps: TLS from the start) |
| WEIR_EGRESS_ALLOW | none | networks that typed addresses may lead to all the same: 127.0.0.0/8 … |
| WEIR_HSTS_SECONDS | a year in production, else 0 | so long a browser comes by https only (0: not told) |
| WEIR_HSTS_SUBDOMAINS | 1 in production, else 0 | 1: also to the host name's subdomains |
| WEIR_SSL_REDIRECT | 1 in production, else 0 | 1 sends http to https, /healthz and /readyz excepted |
| WEIR_METRICS_LOOPBACK | 0 in production, else 1 | 1: /metrics needs no token on this very machine |
| WEIR_LIVE_SOCKETS_PER_PERSON | 20 | live connections (/live/) that one person may hold open |
| WEIR_LIVE_SOCKETS | 500 | live connections that one web process holds open |
| WEIR_LOG_LEVEL | INFO | what is logged: DEBUG, INFO, WARNING, ERROR |
| WEIR_MAIL_FROM | weir@localhost | who mails come from |
"""

import hmac
import ipaddress
import os
import secrets
from pathlib import Path
from urllib.parse import unquote, urlsplit

import dj_database_url
import plotly
from django.core.exceptions import ImproperlyConfigured

from console.accounts import identity_settings
from console.embedded.local import LocalPlant
from console.web.proxies import networks_of
from queues.private_files import keep_private, stored_secret

# Whoever reads the settings may write into WEIR_DATA: web, workers, beat and every command.
keep_private()

BASE_DIR = Path(__file__).resolve().parent.parent
WEIR_DATA = Path(os.environ.get("WEIR_DATA", BASE_DIR / ".weir")).resolve()
WEIR_PRODUCTION = os.environ.get("WEIR_PRODUCTION") == "1"
# A command typed beside a running ./run finds that plant by its data folder.
REDIS_URL = os.environ.get("REDIS_URL") or LocalPlant(WEIR_DATA).control_url() or "redis://127.0.0.1:6379/0"


def _whole_number(name: str, default: int) -> int:
    """Raises ImproperlyConfigured naming the variable."""
    text = os.environ.get(name, "")
    if text and not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise ImproperlyConfigured(f"{name} takes a whole number of at most 10 digits.")
    return int(text) if text else default


def _switch(name: str, default: bool) -> bool:
    """1 or 0. Raises ImproperlyConfigured naming the variable."""
    text = os.environ.get(name, "")
    if text not in ("", "0", "1"):
        raise ImproperlyConfigured(f"{name} takes 1 or 0.")
    return text == "1" if text else default


def _secret_key() -> str:
    """The signing key: from the environment, or (outside production) one kept in the data folder."""
    if key := os.environ.get("WEIR_SECRET_KEY"):
        if WEIR_PRODUCTION and (len(key) < 50 or len(set(key)) < 5):
            raise ImproperlyConfigured("WEIR_SECRET_KEY is too weak; set it to 50 or more random characters.")
        return key
    if WEIR_PRODUCTION and os.environ.get("WEIR_WITHOUT_PAGES") == "1":
        # Signs nothing that another process reads; what a worker does not know, it can't give away.
        return secrets.token_urlsafe(48)
    if WEIR_PRODUCTION:
        raise ImproperlyConfigured("WEIR_SECRET_KEY is missing; set it to 50 or more random characters.")
    return stored_secret(WEIR_DATA / "secret-key", secrets.token_urlsafe(48))


SECRET_KEY = _secret_key()
# A key of its own for each use. A signing key that was changed stays a word of WEIR_AUDIT_KEY, to verify.
WEIR_AUDIT_KEYS = [
    hmac.digest(word.encode(), b"weir audit chain", "sha256")
    for word in os.environ.get("WEIR_AUDIT_KEY", "").split() or [SECRET_KEY]
]
DEBUG = False
_HOSTS = os.environ.get("WEIR_HOSTS", "localhost 127.0.0.1 [::1] testserver").split()
# The health check of compose asks the web process beside it.
ALLOWED_HOSTS = [*_HOSTS, "127.0.0.1"] if WEIR_PRODUCTION else _HOSTS
try:
    WEIR_TRUSTED_PROXIES = networks_of(os.environ.get("WEIR_TRUSTED_PROXIES", ""))
except ValueError as error:
    raise ImproperlyConfigured(f"WEIR_TRUSTED_PROXIES takes networks such as 10.0.3.0/24: {error}") from None
CSRF_TRUSTED_ORIGINS = [f"https://{host}" for host in _HOSTS] if WEIR_PRODUCTION else []

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_celery_beat",
    "axes",
    "django_otp",
    "django_otp.plugins.otp_totp",
    "channels",
    "queues",
    "workers",
    "console",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    # Behind the static files, which lie there compressed. It pads what it packs, so a length tells no secret.
    "console.web.compression.OneMember",
    "console.web.head.HeadOfTheApi",
    "console.web.response_headers.ResponseHeaders",
    "console.web.request_id.RequestId",
    "console.web.problem.Problems",
    "console.audit.refusals.refusals_recorded",
    "console.input.boundary.Boundary",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "console.accounts.login.LoginRequired",
    "console.accounts.sessions.SeenSessions",
    "console.accounts.submissions.OnceOnly",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "axes.middleware.AxesMiddleware",
]

ROOT_URLCONF = "console.urls"
ASGI_APPLICATION = "console.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "console.pages.frame.frame.frame",
            ],
            "builtins": [
                "console.templatetags.weir",
                "console.templatetags.batch",
                "console.templatetags.listing",
            ],
        },
    }
]

_SQLITE = {
    "transaction_mode": "IMMEDIATE",
    "timeout": 20,
    "init_command": "PRAGMA journal_mode=WAL;PRAGMA synchronous=NORMAL",
}
DATABASES = {"default": dj_database_url.config(default=f"sqlite:///{WEIR_DATA / 'weir.sqlite3'}")}
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    DATABASES["default"]["OPTIONS"] = _SQLITE
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"


CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.core.RedisChannelLayer",
        "CONFIG": {"hosts": [REDIS_URL], "prefix": "weir:channels"},
    }
}

# Celery: strict priorities on Redis (0 is served first), one broker database for all roles.
CELERY_BROKER_URL = REDIS_URL
CELERY_RESULT_BACKEND = None
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_DEFAULT_QUEUE = "control"
CELERY_TASK_DEFAULT_PRIORITY = 5
CELERY_TASK_ROUTES = {
    "workers.tasks.consume": {"queue": "jobs"},
    "workers.jobs.*": {"queue": "spark"},
}
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_SEND_TASK_EVENTS = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "priority_steps": list(range(10)),
    "queue_order_strategy": "priority",
    "sep": ":",
    "global_keyprefix": "weir:celery:",
    "visibility_timeout": 3600,
}
CELERY_BEAT_SCHEDULER = "django_celery_beat.schedulers:DatabaseScheduler"
CELERY_BEAT_MAX_LOOP_INTERVAL = 1.0
CELERY_TIMEZONE = "UTC"

AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",
    "django.contrib.auth.backends.ModelBackend",
]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.Argon2PasswordHasher"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {
        "NAME": "django.contrib.auth.password_validation.MinimumLengthValidator",
        "OPTIONS": {"min_length": 12},
    },
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
CSRF_FAILURE_VIEW = "console.web.problem.forged"
LOGIN_URL = "login"
try:
    WEIR_OIDC = identity_settings.read(os.environ)
except ValueError as error:
    raise ImproperlyConfigured(str(error)) from None
# It answers nobody without WEIR_OIDC.
AUTHENTICATION_BACKENDS.append("console.accounts.identity_provider.Backend")
OIDC_RP_SCOPES = WEIR_OIDC["scopes"] if WEIR_OIDC else "openid"
OIDC_AUTHENTICATION_CALLBACK_URL = "oidc-callback"
OIDC_USE_PKCE = True
OIDC_TIMEOUT = 10
OTP_TOTP_ISSUER = "Weir"
LOGIN_REDIRECT_URL = "overview"
LOGOUT_REDIRECT_URL = "login"
AXES_HANDLER = "console.accounts.lockout.Handler"  # it has the limits
AXES_FAILURE_LIMIT = 5
AXES_COOLOFF_TIME = 0.25
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"], "ip_address", "username"]
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
AXES_CLIENT_IP_CALLABLE = "console.web.proxies.address_of"
AXES_LOCKOUT_TEMPLATE = "locked_out.html"
AXES_VERBOSE = False

LANGUAGE_CODE = "en-gb"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False

STATIC_URL = "/static/"
STATIC_ROOT = WEIR_DATA / "static"
STATICFILES_DIRS = [
    BASE_DIR / "static",
    # Plotly's own bundle, served from our origin out of the installed package.
    ("plotly", Path(plotly.__file__).parent / "package_data"),
]
# Collected static files lie in the data folder, too: Django would set 0644 whatever the umask.
FILE_UPLOAD_PERMISSIONS = 0o600
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
}

SESSION_ENGINE = "console.storage.session_store"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = WEIR_PRODUCTION
SESSION_COOKIE_SAMESITE = "Lax"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
# A browser that came once over https comes by nothing else for a year; http is sent to https. Health checks
# on this machine ask by http, and what they are told is no secret.
SECURE_HSTS_SECONDS = _whole_number("WEIR_HSTS_SECONDS", 365 * 86_400 if WEIR_PRODUCTION else 0)
SECURE_HSTS_INCLUDE_SUBDOMAINS = _switch("WEIR_HSTS_SUBDOMAINS", WEIR_PRODUCTION)
SECURE_SSL_REDIRECT = _switch("WEIR_SSL_REDIRECT", WEIR_PRODUCTION)
SECURE_REDIRECT_EXEMPT = ["^healthz$", "^readyz$"]
# The browsers' own list of https hosts takes whole domains, for good: that is not ours to ask for. The
# subdomains of our host name are left out only where an administrator says so.
SILENCED_SYSTEM_CHECKS = ["security.W021"]
if not SECURE_HSTS_INCLUDE_SUBDOMAINS:
    SILENCED_SYSTEM_CHECKS.append("security.W005")
# Static files answer our own pages only; WhiteNoise would allow any site to read them.
WHITENOISE_ALLOW_ALL_ORIGINS = False
# Numbers of the plant by /metrics without a token: for a scraper on this very machine.
WEIR_METRICS_LOOPBACK = _switch("WEIR_METRICS_LOOPBACK", not WEIR_PRODUCTION)
WEIR_LIVE_SOCKETS_PER_PERSON = _whole_number("WEIR_LIVE_SOCKETS_PER_PERSON", 20)
WEIR_LIVE_SOCKETS = _whole_number("WEIR_LIVE_SOCKETS", 500)

# What `workers.host.egress` refuses is allowed here, by network, and on no page.
WEIR_EGRESS_ALLOW = os.environ.get("WEIR_EGRESS_ALLOW", "")
for _network in WEIR_EGRESS_ALLOW.split():
    try:
        ipaddress.ip_network(_network)
    except ValueError:
        raise ImproperlyConfigured(
            f"WEIR_EGRESS_ALLOW takes networks such as 127.0.0.0/8 10.1.0.0/16, not {_network!r}."
        ) from None

# Mail: the server as one address, so that nothing is half configured.
WEIR_PUBLIC_URL = (os.environ.get("WEIR_PUBLIC_URL") or "http://localhost:8000").rstrip("/")
_SMTP = urlsplit(os.environ.get("WEIR_SMTP_URL", ""))
EMAIL_HOST = _SMTP.hostname or ""
EMAIL_PORT = _SMTP.port or (465 if _SMTP.scheme == "smtps" else 587 if _SMTP.username else 25)
EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = unquote(_SMTP.username or ""), unquote(_SMTP.password or "")
EMAIL_USE_SSL = _SMTP.scheme == "smtps"
# A password is never sent over an open line.
EMAIL_USE_TLS = bool(_SMTP.username) and not EMAIL_USE_SSL
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = os.environ.get("WEIR_MAIL_FROM", "weir@localhost")

# A body of events may be this large; more is answered with 413 (the API reads the body itself).
WEIR_MAX_BODY_BYTES = 32 * 1024 * 1024
DATA_UPLOAD_MAX_MEMORY_SIZE = WEIR_MAX_BODY_BYTES

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {levelname} {name}{of_request}: {message}", "style": "{"}},
    "filters": {"request": {"()": "console.web.request_id.LoggedRequest"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["request"]}},
    "root": {"handlers": ["stderr"], "level": os.environ.get("WEIR_LOG_LEVEL", "INFO")},
    "loggers": {"httpx": {"level": "WARNING"}, "axes": {"level": "WARNING"}},
}
