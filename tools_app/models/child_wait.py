"""Calls that wait for subagents."""

from django.db import models

from tools_app.models.tool_call import ToolCall


class ChildWaitMode(models.TextChoices):
    ALL = "all"  # until none of them works
    ANY = "any"  # until one of them rests


class ChildWait(models.Model):
    """Whom a call waits for; written once, in the transaction that makes the call wait."""

    tool_call = models.OneToOneField(ToolCall, models.CASCADE, primary_key=True, related_name="child_wait")
    # The ids of their sessions, in the order of the result.
    children = models.JSONField()
    mode = models.CharField(max_length=3, choices=ChildWaitMode, default=ChildWaitMode.ALL)

    def __str__(self) -> str:
        return f"{self.tool_call_id} for {self.mode} of {len(self.children)}"
