"""Django's settings. What an operator sets is in `tenure_settings.py`; the rest is fixed here."""

import os
import sys
from pathlib import Path

from config import admin_site, content_policy, logs, tenure_settings
from config.database_url import databases
from config.q_cluster import Q_CLUSTER  # noqa: F401 - read by django-q2

BASE_DIR = Path(__file__).resolve().parent.parent

try:
    TENURE = tenure_settings.load(os.environ, root=BASE_DIR)
except tenure_settings.InvalidSettings as error:
    # The list of wrong values is the message; a stack trace above it would only hide it.
    sys.exit(f"tenure: {error}")

SECRET_KEY = TENURE.secret_key or "development-only"
DEBUG = TENURE.debug
ALLOWED_HOSTS = list(TENURE.allowed_hosts)
CSRF_TRUSTED_ORIGINS = list(TENURE.trusted_origins)

INSTALLED_APPS = [
    "unfold",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "django_q",
    "sessions_app",
    "tools_app",
    "machines_app",
]

MIDDLEWARE = [
    "sessions_app.api.middleware.RequestIdMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "config.content_policy.ContentPolicyMiddleware",
    "config.static_files.StaticFilesMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "config.urls"
ASGI_APPLICATION = "config.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
            "libraries": {"console": "sessions_app.console.template_tags"},
        },
    }
]

DATABASES = databases(os.environ)
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]

LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_I18N = False
USE_TZ = True
APPEND_SLASH = False

STATIC_URL = "static/"
STATIC_ROOT = BASE_DIR / "staticfiles"
STORAGES = {
    "default": {
        "BACKEND": "django.core.files.storage.FileSystemStorage",
        "OPTIONS": {"location": TENURE.artifact_root},
    },
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"}
    if not DEBUG
    else {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
WHITENOISE_USE_FINDERS = DEBUG
WHITENOISE_AUTOREFRESH = DEBUG
DATA_UPLOAD_MAX_MEMORY_SIZE = TENURE.max_body_bytes

CSRF_FAILURE_VIEW = "sessions_app.api.problems.csrf_failure"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
# A browser sends them over HTTPS only, except in development.
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = TENURE.secure_cookies and not DEBUG
LOGIN_URL = "console:login"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_CSP = content_policy.STRICT

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "sessions_app.api.authentication.ApiKeyAuthentication",
        "sessions_app.api.authentication.StaffSessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["sessions_app.api.authentication.HasProject"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["sessions_app.api.parsers.StrictJSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "sessions_app.api.problems.exception_handler",
    "UNAUTHENTICATED_USER": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Tenure",
    "DESCRIPTION": "Durable AI agent sessions.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.1",
    "SERVE_INCLUDE_SCHEMA": False,
    "POSTPROCESSING_HOOKS": ["sessions_app.api.openapi.add_components"],
}

UNFOLD = admin_site.unfold()

LOGGING = logs.configure(level=TENURE.log_level, as_json=TENURE.log_json)
