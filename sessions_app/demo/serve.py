"""`manage.py dev`: API, admin and workers until Ctrl-C, and what to paste to see an agent answer.

For development only: it makes a superuser with a new password, a key of project `default`, and a profile
`demo`, and prints them. The processes are those of a deployment, a web process and a runworker.
"""

import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import Error, connection
from django.db.migrations.executor import MigrationExecutor

from sessions_app import configs, keys, profiles
from sessions_app.demo import agent, services
from sessions_app.demo import model as demo_model
from sessions_app.demo.processes import ChildFailed, Interrupted, Processes
from sessions_app.entry_kinds import SYSTEM
from sessions_app.models import ApiKey, Project, Secret

LOOPS = 2
PORTS = 100
"""How many ports from the wanted one on are tried."""

ADMIN = "admin"
KEY_NAME = "make run"
PROFILE = "demo"

type Say = Callable[[str], None]


class CannotServe(Exception):
    """Something has to be changed before this can serve; the message says what."""


def run(*, port: int, say: Say) -> int:
    """Serve until SIGINT or SIGTERM; the exit status."""
    if not settings.DEBUG:
        raise CannotServe(
            "this makes a superuser and prints its password, so it is for development: set TENURE_DEBUG=1. "
            "A deployment runs its web process and `manage.py runworker` itself"
        )
    model = demo_model.parse(settings.TENURE.demo_model)
    if model is not None:
        demo_model.check(model, allowed_networks=settings.TENURE.allowed_networks)
    port = _free_port(port, say)
    _migrate(say)
    project = keys.project_named("default")
    password = _superuser()
    row, key = keys.create_key(project=project.pk, name=KEY_NAME)
    _profile(project, model)
    env = services.environment(TENURE_LOG_LEVEL="WARNING", TENURE_WORKER_DRAIN_TIMEOUT="5s")
    if model is not None:
        env.setdefault("TENURE_PRELOAD_PROVIDERS", model["provider"])
    base = f"http://{services.HOST}:{port}"
    connection.close()
    try:
        with Processes() as processes:
            say("Starting the web process and the workers …")
            web = services.start_web(processes, port=port, env=env)
            worker = services.start_worker(processes, "workers", loops=LOOPS, env=env)
            services.wait_for_web(web, base)
            services.wait_for_worker(worker, loops=LOOPS)
            connection.close()
            for line in _welcome(base=base, password=password, key=key, model=settings.TENURE.demo_model):
                say(line)
            while True:
                for child in processes.children:
                    if not child.running:
                        raise ChildFailed(f"{child.name} ended with status {child.process.returncode}", child)
                time.sleep(0.2)
    except Interrupted:
        say("Stopped.")
        return 0
    finally:
        _revoke(project, row)


def _welcome(*, base: str, password: str, key: str, model: str) -> list[str]:
    auth = f"-H 'Authorization: Bearer {key}'"
    start = (
        f"curl -s {base}/api/v1/sessions {auth} -H 'Content-Type: application/json' "
        f"""-d '{{"profile": "{PROFILE}", "input": {{"content": "Hello, who are you?"}}}}'; echo"""
    )
    newest = f"curl -s '{base}/api/v1/sessions?limit=1' {auth} | grep -o 'ses_[0-9a-z]*' | head -n 1"
    show = f'curl -s "{base}/api/v1/sessions/$({newest})/wait?for=idle,waiting&timeout=30" {auth}; echo'
    return [
        "",
        f"Tenure serves at {base} until Ctrl-C.",
        "",
        f"  console  {base}/   user {ADMIN}, password {password}",
        f"  admin    {base}/admin/",
        f"  API      {base}/api/v1   key {key}",
        f"  agent    profile {PROFILE}, {model or 'a scripted model'}",
        "",
        "Start a session:",
        "",
        start,
        "",
        "Show the answer of the newest session, in `output`:",
        "",
        show,
        "",
    ]


def _free_port(wanted: int, say: Say) -> int:
    for port in range(wanted, min(wanted + PORTS, 65536)):
        if services.is_free(port):
            if port != wanted:
                say(f"Port {wanted} is taken; using {port}.")
            return port
    raise CannotServe(f"no port from {wanted} on is free; choose another with --port")


def _migrate(say: Say) -> None:
    executor = MigrationExecutor(connection)
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        say("Migrating the database …")
        call_command("migrate", verbosity=0)


def _superuser() -> str:
    """Its new password. Random, and gone with the next start, so that nobody comes to rely on it."""
    password = secrets.token_urlsafe(12)
    user: Any
    user, _ = get_user_model().objects.get_or_create(username=ADMIN)
    user.is_active = user.is_staff = user.is_superuser = True
    user.set_password(password)
    user.save()
    return password


def _revoke(project: Project, key: ApiKey) -> None:
    """A printed key opens nothing once what printed it has ended."""
    # The database may be what went away first; then the key stays, in a development database.
    with suppress(Error):
        keys.revoke_key(project=project.pk, key=key.pk)


def _profile(project: Project, model: dict[str, Any] | None) -> None:
    """Point the profile to the agent of this run."""
    named = Secret.objects.filter(project=project, name=demo_model.SECRET)
    if model is not None and "base_url" in model and named.exists():
        model = model | {"credential": demo_model.SECRET}
    config = configs.create_config(project=project.pk, document=agent.answering_document(model)).row
    known = profiles.profiles_of(project.pk).filter(name=PROFILE).first()
    if known is None:
        profiles.create_profile(project=project.pk, name=PROFILE, config=config.pk, actor=SYSTEM)
    else:
        profiles.move_profile(
            project=project.pk,
            profile=known.pk,
            config=config.pk,
            expected_config=known.config_id,
            actor=SYSTEM,
        )
