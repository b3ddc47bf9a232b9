"""Django settings. Everything that differs between machines comes from the environment.

| variable | default | meaning |
|---|---|---|
| WEIR_DATA | .weir | where a local plant keeps its database, node files, checkpoints and secrets |
| WEIR_SECRET_KEY | kept in WEIR_DATA | signs sessions; required when WEIR_PRODUCTION is set |
| WEIR_PRODUCTION | unset | 1 demands secrets from the environment and https cookies |
| WEIR_HOSTS | localhost | host names that may be asked for, separated by spaces |
| DATABASE_URL | SQLite in WEIR_DATA | the console's database |
| REDIS_URL | that of ./run's plant in WEIR_DATA | the control server: broker, leases, live state |
| WEIR_NODES | none | for manage.py seed: the nodes, as name=redis://host:port/0, separated by spaces |
| WEIR_ADMIN_PASSWORD | a random one | for manage.py seed: the first administrator's password |
| WEIR_PUBLIC_URL | http://localhost:8000 | how the console is reached; it stands in messages |
| WEIR_SMTP_URL | none: no mail | the mail server: smtp://user:password@host:587 (smtps: TLS from the start) |
| WEIR_MAIL_FROM | weir@localhost | who mails come from |
"""

import os
import secrets
from pathlib import Path
from urllib.parse import unquote, urlsplit

import dj_database_url
import plotly
from django.core.exceptions import ImproperlyConfigured

from console.local import LocalPlant

BASE_DIR = Path(__file__).resolve().parent.parent
WEIR_DATA = Path(os.environ.get("WEIR_DATA", BASE_DIR / ".weir")).resolve()
WEIR_PRODUCTION = os.environ.get("WEIR_PRODUCTION") == "1"
# A command typed beside a running ./run finds that plant by its data folder.
REDIS_URL = os.environ.get("REDIS_URL") or LocalPlant(WEIR_DATA).control_url() or "redis://127.0.0.1:6379/0"


def _secret_key() -> str:
    """The signing key: from the environment, or (outside production) one kept in the data folder."""
    if key := os.environ.get("WEIR_SECRET_KEY"):
        return key
    if WEIR_PRODUCTION:
        raise ImproperlyConfigured("WEIR_SECRET_KEY is missing; set it to 50 or more random characters.")
    path = WEIR_DATA / "secret-key"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(secrets.token_urlsafe(48))
    return path.read_text()


SECRET_KEY = _secret_key()
DEBUG = False
ALLOWED_HOSTS = os.environ.get("WEIR_HOSTS", "localhost 127.0.0.1 [::1] testserver").split()
CSRF_TRUSTED_ORIGINS = [f"https://{host}" for host in ALLOWED_HOSTS] if WEIR_PRODUCTION else []

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_celery_beat",
    "axes",
    "channels",
    "queues",
    "workers",
    "console",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    # Behind the static files, which lie there compressed. It pads what it packs, so a length tells no secret.
    "django.middleware.gzip.GZipMiddleware",
    "console.access.ContentSecurityPolicy",
    "console.request_id.RequestId",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "console.login.LoginRequired",
    "console.sessions.SeenSessions",
    "console.submissions.OnceOnly",
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
                "console.pages.frame.frame",
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
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "overview"
LOGOUT_REDIRECT_URL = "login"
AXES_FAILURE_LIMIT = 5
AXES_COOLOFF_TIME = 0.25
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
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
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
}

SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = WEIR_PRODUCTION
SESSION_COOKIE_SAMESITE = "Lax"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
if WEIR_PRODUCTION:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")

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
    "formatters": {"line": {"format": "{asctime} {levelname} {name}: {message}", "style": "{"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": os.environ.get("WEIR_LOG_LEVEL", "INFO")},
    "loggers": {"httpx": {"level": "WARNING"}, "axes": {"level": "WARNING"}},
}
