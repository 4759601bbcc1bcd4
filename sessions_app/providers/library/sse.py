"""Server-sent events: bytes to events and back.

Lines end at CR, LF or CRLF and nowhere else: Unicode's own line separators are text (C59), and some SDKs
split at them. What is written again therefore has them escaped, as JSON allows.
"""

from dataclasses import dataclass, replace

# Characters that str.splitlines() takes for line ends and that may stand unescaped inside a JSON string.
_SEPARATORS = {ord(char): f"\\u{ord(char):04x}" for char in "\u2028\u2029\u0085"}


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its `event:` field (None if absent) and its data lines joined."""

    name: str | None
    data: str

    def with_data(self, data: str) -> "Event":
        """The same event with other data."""
        return replace(self, data=data)

    def encode(self) -> bytes:
        """The event on the wire."""
        lines = [] if self.name is None else [f"event: {self.name}"]
        lines += [f"data: {line}" for line in self.data.split("\n")]
        return ("\n".join(lines).translate(_SEPARATORS) + "\n\n").encode()


class Decoder:
    """Feeds on the bytes of a stream in any slicing."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._after_cr = False
        self._name: str | None = None
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that `chunk` completes."""
        events: list[Event] = []
        start = 0
        if self._after_cr and chunk:
            # The CR already ended the line; a LF right behind it belongs to it.
            self._after_cr = False
            if chunk[0] == 0x0A:
                start = 1
        while start < len(chunk):
            end = _line_end(chunk, start)
            if end < 0:
                self._line += chunk[start:]
                break
            self._line += chunk[start:end]
            self._end_line(events)
            start = end + 1
            if chunk[end] == 0x0D:
                if start == len(chunk):
                    self._after_cr = True
                elif chunk[start] == 0x0A:
                    start += 1
        return events

    def finish(self) -> list[Event]:
        """The event that the end of the stream completes: servers forget the last blank line."""
        events: list[Event] = []
        if self._line:
            self._end_line(events)
        self._dispatch(events)
        return events

    def _end_line(self, events: list[Event]) -> None:
        line = self._line.decode("utf-8", "replace")
        self._line.clear()
        if not line:
            self._dispatch(events)
            return
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value

    def _dispatch(self, events: list[Event]) -> None:
        if self._data:
            events.append(Event(name=self._name, data="\n".join(self._data)))
        self._name = None
        self._data = []


def _line_end(chunk: bytes, start: int) -> int:
    carriage = chunk.find(b"\r", start)
    feed = chunk.find(b"\n", start)
    if carriage < 0 or feed < 0:
        return max(carriage, feed)
    return min(carriage, feed)
