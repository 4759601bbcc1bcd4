"""Run a program that refuses to run as root: PostgreSQL, when the checkout belongs to root.

For an ordinary user this is nothing: commands run as they are. For root (a container, a CI machine) they run
as an account made for this purpose. That account has to reach programs and data inside the checkout, and the
checkout may lie below a home that only root can enter. Folders above the checkout are not ours to open, so in
that case the command gets one Linux capability instead (`CAP_DAC_READ_SEARCH`: enter and read, not write), by
way of util-linux' setpriv. The server it is used for is reached through a socket folder that only root and
that account can enter, so nobody gains rights by it.
"""

import os
import pwd
import shutil
import stat
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

ACCOUNT = "tenure-db"
_CAPABILITY = "dac_read_search"


class AccountError(RuntimeError):
    """No account can run the program here."""


@dataclass(frozen=True)
class Account:
    """Who runs a command: `prefix` stands before it, `user` and `group` (None: as we are) own its files."""

    user: int | None = None
    group: int | None = None
    prefix: tuple[str, ...] = field(default=())

    def own(self, path: Path) -> None:
        """Give a file or folder to the account."""
        if self.user is not None and self.group is not None:
            os.chown(path, self.user, self.group)

    def run(self, command: list[str], **kwargs: object) -> subprocess.CompletedProcess[str]:
        """`subprocess.run` as the account, with text output."""
        who = {} if self.prefix or self.user is None else self._identity()
        return subprocess.run([*self.prefix, *command], text=True, check=False, **who, **kwargs)  # type: ignore[call-overload, no-any-return]

    def _identity(self) -> dict[str, object]:
        return {"user": self.user, "group": self.group, "extra_groups": []}


def account_for(*needed: Path) -> Account:
    """The account that can use all `needed` paths (folders it enters, programs it runs).

    An ordinary user is its own account. Root gets `ACCOUNT`, created at first use; raises AccountError,
    saying what to do, when that account can't be made or can't get at a path.
    """
    if os.geteuid() != 0:
        return Account()
    entry = _passwd_entry()
    plain = Account(entry.pw_uid, entry.pw_gid)
    closed = _first_closed(plain, needed)
    if closed is None:
        return plain
    setpriv = shutil.which("setpriv")
    if setpriv:
        grant = f"-all,+{_CAPABILITY}"
        who = [setpriv, "--reuid", str(plain.user), "--regid", str(plain.group), "--clear-groups"]
        # access(2), which initdb asks before it runs a program, ignores capabilities without this bit.
        who += ["--securebits", "+no_setuid_fixup", "--inh-caps", grant, "--ambient-caps", grant]
        capable = Account(plain.user, plain.group, tuple(who))
        closed = _first_closed(capable, needed)
        if closed is None:
            return capable
    raise AccountError(
        f"PostgreSQL does not run as root, and the account {ACCOUNT} that would run it can't use {closed}. "
        "Move the checkout to a folder that every user can enter (for example below /srv), "
        "work as an ordinary user, or set DATABASE_URL to a PostgreSQL of your own."
    )


def _passwd_entry() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(ACCOUNT)
    except KeyError:
        pass
    useradd = shutil.which("useradd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    said = "useradd is missing"
    if useradd:
        command = [useradd, "--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent"]
        made = subprocess.run(
            [*command, "--shell", "/usr/sbin/nologin", ACCOUNT], capture_output=True, text=True, check=False
        )
        said = made.stderr.strip()
    try:
        # Not judged by the exit status: another process may have made it at the same moment.
        return pwd.getpwnam(ACCOUNT)
    except KeyError:
        raise AccountError(
            f"PostgreSQL does not run as root, and the account {ACCOUNT} could not be made ({said}). "
            "Work as an ordinary user, or set DATABASE_URL to a PostgreSQL of your own."
        ) from None


def _first_closed(account: Account, needed: tuple[Path, ...]) -> Path | None:
    """The first path that the account can't use, found by trying: mode bits alone don't tell."""
    for path in needed:
        try:
            done = account.run(
                ["/bin/sh", "-c", 'test -r "$0" && test -x "$0"', str(path)], capture_output=True
            )
        except (OSError, subprocess.SubprocessError):
            return path
        if done.returncode:
            return path
    return None


def open_for_reading(tree: Path) -> None:
    """Let every account read the files of `tree` and run its programs, whatever umask they came under."""
    for path in (tree, *tree.rglob("*")):
        if path.exists() and not path.is_symlink():
            mode = path.stat().st_mode
            wider = mode | stat.S_IROTH | (stat.S_IXOTH if mode & stat.S_IXUSR else 0)
            if wider != mode:
                path.chmod(wider)
