"""The admin of tools: what is asked to answer, what is remembered to revoke, calls and skills to read."""

from tools_app.admin import approvals, permissions, questions, skills, tool_calls

__all__ = ["approvals", "permissions", "questions", "skills", "tool_calls"]
