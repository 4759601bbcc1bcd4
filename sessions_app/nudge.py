"""A way to interrupt a thread that waits on sockets."""

import os
import threading


class Nudge:
    """A pipe: the waiting thread selects on it, others `give`. Giving to a closed one does nothing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._closed = False

    def fileno(self) -> int:
        return self._read

    def give(self) -> None:
        with self._lock:
            if not self._closed:
                try:
                    os.write(self._write, b"!")
                except BlockingIOError:
                    return  # it is full of nudges already

    def take(self) -> None:
        """After the wait: the nudges so far are done with."""
        try:
            os.read(self._read, 4096)
        except BlockingIOError:
            return

    def close(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self._read)
                os.close(self._write)
