"""Set-up is done once, again after an interruption, and nothing of this machine gets into a commit."""

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from config.bootstrap import install, tracked_files
from tests.wire import install as wire_install

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of its own, whose environment is the interpreter of the test as far as set-up can tell."""
    monkeypatch.setattr(install, "ROOT", tmp_path)
    monkeypatch.setattr(install, "VENV", tmp_path / ".venv")
    locks = {"base": tmp_path / "requirements.lock", "dev": tmp_path / "requirements-dev.lock"}
    monkeypatch.setattr(install, "LOCK_FILES", locks)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    (tmp_path / ".venv").mkdir()
    for path in locks.values():
        path.write_text("one==1 \\\n    --hash=sha256:00\n")
    return tmp_path


def stamped(level: str) -> None:
    install.stamp(level).write_text(install.key(level))


def test_nothing_is_up_to_date_before_its_stamp_is_written(checkout: Path) -> None:
    assert not install.up_to_date("base")
    assert not install.up_to_date("dev")


def test_the_tools_of_development_include_what_runs_tenure_but_not_the_other_way_round(
    checkout: Path,
) -> None:
    stamped("base")
    assert install.up_to_date("base")
    assert not install.up_to_date("dev")
    install.stamp("base").unlink()
    stamped("dev")
    assert install.up_to_date("base")
    assert install.up_to_date("dev")


def test_a_changed_lock_file_makes_set_up_run_again(checkout: Path) -> None:
    stamped("base")
    (checkout / "requirements.lock").write_text("one==2\n")
    assert not install.up_to_date("base")


def test_another_python_or_a_moved_checkout_makes_set_up_run_again(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stamped("base")
    monkeypatch.setattr(sys, "version", "3.99.0 (somewhere)")
    assert not install.up_to_date("base")
    stamped("base")
    monkeypatch.setattr(install, "ROOT", checkout / "moved")
    assert not install.up_to_date("base")


def test_an_environment_that_does_not_run_is_never_up_to_date(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stamped("base")
    monkeypatch.setattr(sys, "prefix", "/usr")
    assert not install.up_to_date("base")


def test_an_interrupted_installation_leaves_no_stamp(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stamped("dev")
    (checkout / "requirements-dev.lock").write_text("one==2\n")

    def interrupted(command: list[str], what: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(install, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        install.install("dev")
    assert not install.up_to_date("dev")


def test_a_failing_step_shows_the_end_of_its_output(checkout: Path) -> None:
    with pytest.raises(install.SetupError, match=r"(?s)the step failed with status 3.*no such package"):
        install.run([sys.executable, "-c", "print('no such package'); exit(3)"], "the step")


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-dev.lock", "tests/wire/node.lock"])
def test_every_locked_package_has_a_hash(name: str) -> None:
    entries = (ROOT / name).read_text().replace("\\\n", " ").splitlines()
    assert entries
    assert all("==" in entry and "--hash=sha256:" in entry for entry in entries)


def test_development_locks_the_same_versions_as_production() -> None:
    def pins(name: str) -> set[str]:
        """Without platforms: what development adds may need a package on more of them."""
        lines = (ROOT / name).read_text().splitlines()
        return {line.rstrip(" \\").partition(" ; ")[0] for line in lines if line[:1].isalnum()}

    assert pins("requirements.lock") < pins("requirements-dev.lock")


def test_tracked_files_name_no_place_of_this_machine() -> None:
    assert tracked_files.problems() == []


def test_a_lock_file_with_an_address_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    monkeypatch.setattr(tracked_files, "ROOT", tmp_path)
    (tmp_path / "package-lock.json").write_text('{"resolved": "https://registry.invalid/x.tgz"}')
    (tmp_path / "note.md").write_text(f"see https://example.org and {tmp_path}/note.md")
    assert tracked_files.problems() == [
        f"note.md: holds {tmp_path}/",
        "package-lock.json: holds ://",
        'package-lock.json: holds "resolved"',
    ]


def node(folder: Path, says: str) -> Path:
    folder.mkdir()
    path = folder / "node"
    path.write_text(f"#!/bin/sh\n{says}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def wire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The installer with no Node on PATH but npm."""
    npm = tmp_path / "bin" / "npm"
    npm.parent.mkdir()
    npm.write_text("#!/bin/sh\n")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", str(npm.parent))
    return wire_install


def test_a_node_that_fails_or_is_too_old_is_passed_over(
    wire: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node(tmp_path / "broken", "exit 127")
    node(tmp_path / "old", "echo v18.20.4")
    good = node(tmp_path / "good", "echo v22.3.0")
    folders = [str(tmp_path / name) for name in ("broken", "old", "bin")]
    monkeypatch.setenv("PATH", ":".join(folders))
    assert wire.node_on_path() is None
    monkeypatch.setenv("PATH", ":".join([*folders, str(good.parent)]))
    found = wire.node_on_path()
    assert found is not None
    assert found.node == good


def test_a_missing_node_is_said_with_the_remedy(wire: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(wire_install.InstallError, match="make setup"):
        wire.find_node()


@pytest.mark.parametrize(("lock", "extras"), [("requirements.lock", []), ("requirements-dev.lock", ["dev"])])
def test_the_lock_files_satisfy_what_the_project_asks_for(lock: str, extras: list[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = list(project["dependencies"])
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    pins = {
        canonicalize_name(name): version
        for name, version in re.findall(
            r"^([A-Za-z0-9._-]+)==([^ ;]+)", (ROOT / lock).read_text(), re.MULTILINE
        )
    }
    for requirement in map(Requirement, wanted):
        name = canonicalize_name(requirement.name)
        assert name in pins, f"{lock} lacks {name}; run make lock"
        assert requirement.specifier.contains(pins[name], prereleases=True), f"{lock} has {name} {pins[name]}"
