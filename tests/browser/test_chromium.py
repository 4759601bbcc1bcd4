"""How the browser is found and brought along; with programs of our own instead of real ones."""

import os
from pathlib import Path

import pytest

from tests.browser import chromium


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder that is all there is on PATH, next to what every machine has."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("touch", "chmod", "sh"):
        place = next(path / tool for path in map(Path, os.get_exec_path()) if os.access(path / tool, os.X_OK))
        (folder / tool).symlink_to(place)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("TENURE_TEST_CHROMIUM", raising=False)
    monkeypatch.setattr(chromium.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(chromium.os, "geteuid", lambda: 0)
    return folder


def program(folder: Path, name: str, script: str = "") -> Path:
    place = folder / name
    place.write_text(f"#!/bin/sh\n{script}\n")
    place.chmod(0o755)
    return place


def test_the_named_browser_counts_then_path(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path = program(machine, "google-chrome")
    assert chromium.ensure() == on_path
    named = program(machine.parent, "my-browser")
    monkeypatch.setenv("TENURE_TEST_CHROMIUM", str(named))
    assert chromium.ensure() == named
    monkeypatch.setenv("TENURE_TEST_CHROMIUM", "/no/such/browser")
    with pytest.raises(chromium.NoBrowser, match="/no/such/browser"):
        chromium.ensure()


def test_root_on_a_debian_gets_it_installed_also_when_a_mirror_stumbles(machine: Path) -> None:
    program(
        machine,
        "apt-get",
        f"""[ -e {machine}/stumbled ] || {{ touch {machine}/stumbled; echo "no answer" >&2; exit 100; }}
        [ "$1" = update ] || {{ touch {machine}/chromium; chmod 755 {machine}/chromium; }}""",
    )
    assert chromium.ensure() == machine / "chromium"


def test_others_are_told_what_to_do(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(chromium.NoBrowser, match="TENURE_TEST_CHROMIUM"):
        chromium.ensure()
    program(machine, "apt-get", "echo 'could not resolve' >&2; exit 100")
    with pytest.raises(chromium.NoBrowser, match="could not resolve"):
        chromium.ensure()
    monkeypatch.setattr(chromium.os, "geteuid", lambda: 1000)
    with pytest.raises(chromium.NoBrowser, match="no Chromium on this machine"):
        chromium.ensure()
