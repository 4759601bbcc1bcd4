"""What a step saves, as a value, and the one function that commits any number of them (S2, L3).

A `StepWrite` says what happened (a reply, results of tools) and what follows from it (`Then`: the next model
call, the end of the turn, the release). What happened is saved whenever the lease still holds. What follows was
planned on a certain `work_rev`; if that moved while the step was on its way, it is left out and the worker
plans again (S11), so an input that arrives in any interleaving is seen before the turn ends.

`commit_steps` takes all steps that gathered while the last commit was under way: it locks the session rows in
id order with SKIP LOCKED, then the lease rows in a second statement (which sees what was committed while the
first one waited), compares worker and attempt, and writes for those that match with one statement per table.
Missing leases are reported as lost; busy sessions and what the database refuses are tried again one by one,
so that one bad row fails alone, and one that stays busy is handed back (`Busy`) and delays no other. Two round
trips for any number of steps: the locks, then all writes with the COMMIT behind them.

A step that ends the turn of a subagent is committed alone, with the parent's row locked beside it, because the
parent is told in the same transaction (T8). In a tree of sessions the tree's budget is locked behind the leases.

A COMMIT whose answer got lost is looked up, not repeated: ids are made before the first try (S10).
"""

from sessions_app.steps.commit import commit_steps
from sessions_app.steps.values import (
    NO_USAGE,
    Busy,
    LimitAsk,
    Lost,
    ModelCallEnd,
    ModelCallStart,
    Refused,
    Saved,
    StepResult,
    StepWrite,
    Then,
    TurnEnd,
    TurnStart,
)

__all__ = [
    "NO_USAGE",
    "Busy",
    "LimitAsk",
    "Lost",
    "ModelCallEnd",
    "ModelCallStart",
    "Refused",
    "Saved",
    "StepResult",
    "StepWrite",
    "Then",
    "TurnEnd",
    "TurnStart",
    "commit_steps",
]
