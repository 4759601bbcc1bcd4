"""Programs that refuse root run as another account, which gets at what it needs and at no more."""

import os
import shutil
from pathlib import Path

import pytest

from config import unprivileged
from config.unprivileged import ACCOUNT, AccountError, account_for, open_for_reading

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs programs as another account")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program in a folder that only its owner can enter; it reports who runs it and whether it may read."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    path = closed / "program"
    path.write_text('#!/bin/sh\ntest -r "$0" && id -un\n')
    path.chmod(0o755)
    return path


@as_root
def test_a_program_behind_a_closed_folder_runs_as_the_account(program: Path) -> None:
    done = account_for(program).run([str(program)], capture_output=True)
    assert (done.returncode, done.stdout) == (0, f"{ACCOUNT}\n")
    assert program.parent.stat().st_mode & 0o777 == 0o700


@as_root
def test_the_account_can_write_nothing_there(program: Path) -> None:
    account = account_for(program)
    done = account.run(["/bin/sh", "-c", f"echo more >> {program}"], capture_output=True)
    assert done.returncode != 0
    assert "more" not in program.read_text()


@as_root
def test_without_setpriv_a_closed_folder_is_an_error_that_says_what_to_do(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unprivileged.shutil, "which", lambda name, **_: None)
    with pytest.raises(AccountError) as refused:
        account_for(program)
    assert str(program) in str(refused.value)
    assert "DATABASE_URL" in str(refused.value)


@as_root
def test_where_everybody_may_go_no_capability_is_asked_for() -> None:
    assert account_for(Path("/usr"), Path("/bin/sh")).prefix == ()


def test_an_ordinary_user_is_its_own_account(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    account = account_for(program)
    assert (account.user, account.prefix) == (None, ())


@as_root
def test_an_account_that_cannot_be_made_is_an_error_that_says_what_to_do(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unprivileged, "ACCOUNT", "no:such/name")
    with pytest.raises(AccountError, match=r"could not be made .*DATABASE_URL"):
        account_for(program)


def test_opening_a_tree_lets_others_read_and_run_but_not_write(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "bin").mkdir(parents=True)
    program, text = tree / "bin" / "program", tree / "text"
    shutil.copy("/bin/sh", program)
    text.write_text("text")
    for path, mode in ((tree, 0o700), (tree / "bin", 0o700), (program, 0o700), (text, 0o600)):
        path.chmod(mode)
    open_for_reading(tree)
    modes = [path.stat().st_mode & 0o777 for path in (tree, tree / "bin", program, text)]
    assert modes == [0o705, 0o705, 0o705, 0o604]
