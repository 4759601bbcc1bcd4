"""Machines that dial in to run commands, and which sessions may use them."""

from django.db import models
from django.db.models.functions import Lower

from sessions_app.ids import new_id
from sessions_app.models import Project, Session
from sessions_app.models.fields import CreatedAt


class Machine(models.Model):
    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    project = models.ForeignKey(Project, models.CASCADE, related_name="machines")
    name = models.CharField(max_length=100)
    created_at = CreatedAt()

    class Meta:
        constraints = [models.UniqueConstraint("project", Lower("name"), name="machine_name_unique")]

    def __str__(self) -> str:
        return self.name


class MachineBinding(models.Model):
    """A session's right to use a machine, with the folder and environment its commands start in."""

    session = models.ForeignKey(Session, models.CASCADE, related_name="machine_bindings")
    machine = models.ForeignKey(Machine, models.CASCADE, related_name="bindings")
    cwd = models.TextField(blank=True)
    env = models.JSONField(default=dict, blank=True)
    created_at = CreatedAt()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["session", "machine"], name="machine_binding_unique")]

    def __str__(self) -> str:
        return f"{self.session_id} on {self.machine_id}"
