"""Tests and the processes that they start work on one database, and never on that of development."""

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from django.db import connection

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.django_db
def test_the_url_for_processes_leads_to_the_database_of_the_tests(database_url: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_database(), oid FROM pg_database WHERE datname = current_database()")
        ours = cursor.fetchone()
    with psycopg.connect(database_url) as other:
        theirs = other.execute(
            "SELECT current_database(), oid FROM pg_database WHERE datname = current_database()"
        ).fetchone()
    assert ours == theirs


def test_a_process_started_by_a_test_uses_the_projects_own_settings(
    process_environment: dict[str, str],
) -> None:
    program = "import django; django.setup(); from django.conf import settings as s; "
    program += "print(s.SETTINGS_MODULE, s.DATABASES['default']['NAME'])"
    said = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=process_environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert said.stdout.split() == ["config.settings", connection.settings_dict["NAME"]]


def test_the_development_cluster_is_not_the_one_of_the_tests() -> None:
    assert ".tenure%2Fpostgres" not in os.environ["DATABASE_URL"]
