"""Snapshots of PostgreSQL as positions in a project's feed. Pure.

A snapshot says of every transaction whether it had committed by then: those from `xmax` on had not begun, those
in `running` had not ended, all others had. It is the only position that can never skip a transaction that
commits late, because it names it. Reading on from a snapshot means: what is committed now and was not then.

A page that does not hold all of that ends at a snapshot of our own making, which differs from a real one only
in that it takes some transactions for not yet ended.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

PACKED_LIMIT = 360
"""Bytes. Two packed snapshots, in base64, fit into a cursor of 1,024 characters."""

_MORE = 0x80


class Malformed(ValueError):
    """These bytes are no snapshot."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`running` is sorted, without doubles, and below `xmax`."""

    xmax: int
    running: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """From PostgreSQL's form, `xmin:xmax:xip,xip`."""
        _, xmax, running = text.split(":")
        return cls(int(xmax), tuple(sorted(int(xid) for xid in running.split(",") if xid)))

    def __str__(self) -> str:
        xmin = self.running[0] if self.running else self.xmax
        return f"{xmin}:{self.xmax}:{','.join(map(str, self.running))}"

    def sees(self, xid: int) -> bool:
        """Whether the transaction, which has committed by now, had done so by then."""
        return xid < self.xmax and xid not in self.running

    def advanced(self, now: "Snapshot", *, below: int) -> "Snapshot":
        """This one, with everything below `below` that has ended according to `now`."""
        xmax = max(self.xmax, min(below, now.xmax))
        waiting = {xid for xid in self.running if xid >= below or not now.sees(xid)}
        waiting |= {xid for xid in now.running if self.xmax <= xid < xmax}
        return Snapshot(xmax, tuple(sorted(waiting)))

    def bounded(self) -> "Snapshot":
        """One that fits into a cursor. It ends earlier where very many transactions run at once."""
        found = self
        while len(found.packed()) > PACKED_LIMIT:
            kept = len(found.running) * 9 // 10
            found = Snapshot(found.running[kept], found.running[:kept])
        return found

    def packed(self) -> bytes:
        """`xmax`, how many run, and the way down from each to the next, in as few bytes as each needs."""
        numbers = [self.xmax, len(self.running)]
        above = self.xmax
        for xid in reversed(self.running):
            numbers.append(above - xid)
            above = xid
        return b"".join(map(pack, numbers))

    @classmethod
    def unpacked(cls, numbers: Iterable[int]) -> Self:
        """From the numbers of `packed`; takes as many as belong to it. Raises `Malformed`."""
        source = iter(numbers)
        try:
            xmax, count = next(source), next(source)
            running: list[int] = []
            above = xmax
            for _ in range(count):
                step = next(source)
                above -= step
                if step == 0 or above < 0:
                    raise Malformed
                running.append(above)
        except StopIteration:
            raise Malformed from None
        return cls(xmax, tuple(reversed(running)))


START = Snapshot(0)
"""Sees nothing: the place before the first entry."""


def pack(number: int) -> bytes:
    """A whole number in groups of seven bits, the lowest first."""
    packed = bytearray()
    while number >= _MORE:
        packed.append(number % _MORE | _MORE)
        number //= _MORE
    packed.append(number)
    return bytes(packed)


def unpack(packed: bytes) -> list[int]:
    """All numbers of a row of packed ones. Raises `Malformed`."""
    numbers: list[int] = []
    value = shift = 0
    for byte in packed:
        value |= (byte & (_MORE - 1)) << shift
        shift += 7
        if byte < _MORE:
            if value >= 1 << 63:
                raise Malformed
            numbers.append(value)
            value = shift = 0
    if shift:
        raise Malformed
    return numbers
