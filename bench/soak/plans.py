"""What each session of a soak says, and how. Pure; the seed decides.

A quarter of the sessions changes its model's protocol from turn to turn. Some put all inputs into the queue at
once, some wait for each turn's end. Some inputs are followed by a steering one, a moment later or at once.
"""

import random
from dataclasses import dataclass

NAME = r"soak\d{4,}"
"""What a session's name looks like."""
PROTOCOLS = ("openai", "openai-chat", "anthropic")
TOPICS = ("story", "lookup", "compare", "ledger")
"""What is asked for; `mock.ANSWERS` knows what the model does then."""

_STEERED = 0.3
_LATEST = 0.6  # seconds after its input


@dataclass(frozen=True, slots=True)
class Turn:
    """One queued input; `steer_after` are the seconds until a steering one follows, None for none."""

    text: str
    protocol: str
    steer_after: float | None


@dataclass(frozen=True, slots=True)
class Plan:
    """One session. `name` is in everything that it says, so that its requests can be told."""

    name: str
    at_once: bool
    turns: tuple[Turn, ...]

    @property
    def switches(self) -> bool:
        return len({turn.protocol for turn in self.turns}) > 1


def plans(*, seed: int, sessions: int, turns: int) -> list[Plan]:
    return [_plan(seed, number, turns) for number in range(1, sessions + 1)]


def _plan(seed: int, number: int, turns: int) -> Plan:
    draw = random.Random(f"{seed}/{number}")
    name = f"soak{number:04}"
    switches = number % 4 == 0
    usual = PROTOCOLS[number % len(PROTOCOLS)]
    made = tuple(
        Turn(
            text=f"{name} turn {at}: {draw.choice(TOPICS)}",
            protocol=draw.choice(PROTOCOLS) if switches else usual,
            steer_after=draw.uniform(0, _LATEST) if draw.random() < _STEERED else None,
        )
        for at in range(1, turns + 1)
    )
    return Plan(name=name, at_once=not switches and draw.random() < 0.5, turns=made)


def steering_text(plan: Plan) -> str:
    return f"{plan.name}: steer to the left"
