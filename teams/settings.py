"""Django's settings, from the environment.

REGROUP_HOME     where data lies (default: `var` beside manage.py)
REGROUP_SECRET   secret key (default: made once and kept in REGROUP_HOME, readable by its owner alone)
REGROUP_DEBUG    1 for Django's debug pages; never on a machine that others reach
"""

import os
import secrets
from pathlib import Path

from csp.constants import NONCE, NONE, SELF

BASE_DIR = Path(__file__).resolve().parents[1]
HOME = Path(os.environ.get("REGROUP_HOME") or BASE_DIR / "var")


def _secret_key() -> str:
    """The key of the environment, or one that is made at the first start."""
    if key := os.environ.get("REGROUP_SECRET"):
        return key
    file = HOME / "secret_key"
    HOME.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return file.read_text()
    with os.fdopen(descriptor, "w") as new:
        new.write(secrets.token_urlsafe(50))
    return file.read_text()


SECRET_KEY = _secret_key()
DEBUG = os.environ.get("REGROUP_DEBUG") == "1"
ALLOWED_HOSTS = ["127.0.0.1", "localhost", "[::1]"]

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "csp",
    "django_htmx",
    "teams",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "csp.middleware.CSPMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "teams.urls"
ASGI_APPLICATION = "teams.asgi.application"
CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "teams.pages.notice.context",
            ]
        },
    }
]
STATIC_URL = "static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
# Files are served from where they lie, and browsers ask each time whether they have changed: no step before a start.
WHITENOISE_USE_FINDERS = True
WHITENOISE_MAX_AGE = 0
WHITENOISE_ALLOW_ALL_ORIGINS = False

# A page's own script or style needs `nonce="{{ request.csp_nonce }}"`.
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "script-src": [SELF, NONCE],
        "style-src": [SELF, NONCE],
        "img-src": [SELF, "data:", "blob:"],
        "connect-src": [SELF],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
        "base-uri": [NONE],
        "object-src": [NONE],
    }
}
SECURE_REFERRER_POLICY = "same-origin"

# People come in by links that work once (`manage.py login_link`); `serve` adds the port to the cookies' names.
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "/"
SESSION_COOKIE_AGE = 30 * 24 * 3600
SESSION_COOKIE_NAME = "regroup_session"
CSRF_COOKIE_NAME = "regroup_csrf"
CSRF_COOKIE_HTTPONLY = True

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": HOME / "regroup.sqlite3",
        "TEST": {"NAME": HOME / "test.sqlite3"},  # a file, as in earnest: one in memory locks otherwise
        # Without these 366 of 600 concurrent writes failed with "database is locked", with them none.
        "OPTIONS": {
            "timeout": 20,
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        },
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
