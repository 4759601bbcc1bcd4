"""The tables of sessions, their log, and what stands around them."""

from sessions_app.models.artifact import Artifact
from sessions_app.models.child import Child, TreeBudget
from sessions_app.models.config import AgentConfig, AgentProfile, ProfileVersion
from sessions_app.models.entry import Entry
from sessions_app.models.idempotency import IdempotencyRecord
from sessions_app.models.input import Delivery, Input, InputState
from sessions_app.models.lease import Lease, Liveness, Worker
from sessions_app.models.model_call import ModelCall, ModelCallState, Purpose
from sessions_app.models.project import ApiKey, KeyRole, Project, Secret
from sessions_app.models.session import (
    BRANCH,
    RESUME_AFTER,
    EndReason,
    Session,
    SessionStatus,
    Turn,
    TurnReason,
    TurnStatus,
)
from sessions_app.models.ticket import Ticket

__all__ = [
    "BRANCH",
    "RESUME_AFTER",
    "AgentConfig",
    "AgentProfile",
    "ApiKey",
    "Artifact",
    "Child",
    "Delivery",
    "EndReason",
    "Entry",
    "IdempotencyRecord",
    "Input",
    "InputState",
    "KeyRole",
    "Lease",
    "Liveness",
    "ModelCall",
    "ModelCallState",
    "ProfileVersion",
    "Project",
    "Purpose",
    "Secret",
    "Session",
    "SessionStatus",
    "Ticket",
    "TreeBudget",
    "Turn",
    "TurnReason",
    "TurnStatus",
    "Worker",
]
