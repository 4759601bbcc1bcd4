"""The wire between the supervisor and its loops, which are not its children but its grandchildren.

django-q2 forks the loops, so the supervisor neither knows their pids nor is told of their deaths. So each
worker process makes a socket pair, sends one end over a datagram socket that everybody inherited ("here I
am", with its pid), and keeps the other. That private connection is all there is:

- its end of file is the death of the process, however it died, within a millisecond or two;
- on it the supervisor says which loop to become, and when (`start`), and later `drain` and `abort`;
- on it the loop says `started`, `draining` (a signal reached only this loop), `ended`, and `beat`;
- its end of file on the other side is the death of the supervisor.

Messages are JSON objects, one a line, `{"say": …}`. Nothing comes from outside the family.
"""

import json
import os
import signal
import socket
from typing import Any

_LIMIT = 65536


class Link:
    """One end of a private connection. `closed` is true once the other side is gone."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self._socket = connection
        self._socket.setblocking(False)
        self._rest = b""
        self.pid = pid
        self.closed = False
        self._pidfd: int | None = None

    def fileno(self) -> int:
        """For selectors."""
        return self._socket.fileno()

    def say(self, what: str, **fields: Any) -> None:
        """Send one message. To a side that is gone, none: its end of file is still to be heard."""
        try:
            self._socket.sendall(json.dumps({"say": what, **fields}).encode() + b"\n")
        except OSError:
            # Broken pipe, or hundreds of unread messages (the other side is frozen, and missing beats are
            # watched elsewhere).
            return

    def hear(self) -> list[dict[str, Any]]:
        """The messages that have arrived. At end of file `closed` becomes true."""
        while not self.closed:
            try:
                part = self._socket.recv(_LIMIT)
            except BlockingIOError:
                break
            except OSError:
                part = b""
            if not part:
                self.closed = True
            self._rest += part
        *lines, self._rest = self._rest.split(b"\n")
        return [json.loads(line) for line in lines]

    def hold(self) -> None:
        """Keep a handle of the process, which stays true to it when its pid is used again.

        Without one (macOS, a sandbox that refuses it) the pid has to do.
        """
        if hasattr(os, "pidfd_open"):
            try:
                self._pidfd = os.pidfd_open(self.pid)
            except ProcessLookupError:
                self.closed = True
            except OSError:
                return

    def kill(self) -> None:
        """SIGKILL the process on the other side; already gone is fine."""
        try:
            if self._pidfd is not None:
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            elif not self.closed:
                os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def close(self) -> None:
        """Hang up."""
        self.closed = True
        self._socket.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None


class Lobby:
    """Where new worker processes announce themselves; made by the supervisor before the first fork."""

    def __init__(self) -> None:
        self._inside, self._door = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._inside.setblocking(False)

    def fileno(self) -> int:
        """Readable when somebody is there; for selectors."""
        return self._inside.fileno()

    def enter(self) -> Link:
        """In a new worker process: announce it and return its end of the connection."""
        ours, theirs = socket.socketpair()
        socket.send_fds(self._door, [str(os.getpid()).encode()], [theirs.fileno()])
        theirs.close()
        return Link(ours, os.getppid())

    def arrivals(self) -> list[Link]:
        """In the supervisor: a link for each process that announced itself since the last call."""
        links: list[Link] = []
        while True:
            try:
                message, descriptors, _, _ = socket.recv_fds(self._inside, 64, 1)
            except BlockingIOError:
                return links
            connection = socket.socket(fileno=descriptors[0])
            link = Link(connection, int(message))
            link.hold()
            links.append(link)

    def close(self) -> None:
        """Nobody announces itself any more."""
        self._inside.close()
        self._door.close()
