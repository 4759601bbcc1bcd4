"""The identity of an agent config: SHA-256 of its canonical JSON (RFC 8785).

Taken after short forms are expanded and before defaults are filled: the same document in YAML and in JSON,
with `model: "openai:gpt-5"` or with the long form, is one config; a later change of a default changes none.
"""

import hashlib

import rfc8785

from sessions_app.agent_config.document import AgentConfigDocument


def canonical_json(document: AgentConfigDocument) -> bytes:
    """UTF-8, keys sorted, no white space, one way to write each number and string."""
    return rfc8785.dumps(document.canonical_form())


def identity(document: AgentConfigDocument) -> str:
    """64 hexadecimal digits."""
    return hashlib.sha256(canonical_json(document)).hexdigest()
