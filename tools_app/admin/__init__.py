"""The admin of tools: calls to read, approvals to decide, questions to answer."""

from tools_app.admin import approvals, questions, tool_calls

__all__ = ["approvals", "questions", "tool_calls"]
