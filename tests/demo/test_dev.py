"""`manage.py dev`: what it prints works when it is pasted, and Ctrl-C ends all of it."""

import json
import re
import socket
import subprocess
from pathlib import Path

import httpx2
import pytest

from sessions_app.demo import serve, services
from tests.demo.running import Command, command


def get(url: str) -> httpx2.Response:
    return httpx2.get(url, trust_env=False, timeout=20)


def paste(text: str) -> str:
    """What a shell prints when one pasted line has run."""
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    return done.stdout


def log_in(dev: Command) -> httpx2.Response:
    """The console's answer to the login that was printed."""
    shown = dev.wait_for(r"console +(\S+) +user (\S+), password (\S+)")
    page, user, password = shown.groups()
    with httpx2.Client(trust_env=False, timeout=20) as browser:
        form = browser.get(f"{page}login")
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', form.text)
        assert token
        fields = {"csrfmiddlewaretoken": token[1], "username": user, "password": password}
        return browser.post(f"{page}login", data=fields)


@pytest.mark.processes
def test_the_printed_commands_work_when_pasted(tmp_path: Path, environment: dict[str, str]) -> None:
    """The newcomer's path: log in, paste two lines, see the answer, Ctrl-C."""
    with socket.create_server((services.HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with command(tmp_path / "out", "dev", "--port", str(port), env=environment) as dev:
            dev.wait_for(r"^curl .*/wait")
            assert f"Port {port} is taken; using " in dev.text()
            base = dev.wait_for(r"serves at (\S+) until")[1]
            start, show = re.findall(r"^curl .*$", dev.text(), re.MULTILINE)

            started = json.loads(paste(start))
            assert started["id"].startswith("ses_")
            shown = json.loads(paste(show))
            assert shown["id"] == started["id"]
            assert shown["status"] == "idle"
            assert "scripted agent" in shown["output"][0]["text"]
            # The agent answers again and again.
            paste(start)
            assert json.loads(paste(show))["output"] == shown["output"]

            assert log_in(dev).status_code == httpx2.codes.FOUND
            sheet = re.search(r'href="(/static/[^"]+\.css[^"]*)"', get(f"{base}/admin/login/").text)
            assert sheet
            assert get(base + sheet[1]).is_success

            dev.ctrl_c()
            assert dev.status() == 0
            assert dev.left() == []
            assert dev.text().rstrip().endswith("Stopped.")


def test_it_is_refused_outside_development(settings) -> None:
    """A superuser whose password is printed is for development only."""
    settings.DEBUG = False
    with pytest.raises(serve.CannotServe, match="TENURE_DEBUG=1"):
        serve.run(port=8000, say=print)
