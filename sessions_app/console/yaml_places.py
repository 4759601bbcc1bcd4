"""Where in a YAML text the part stands that a JSON pointer names, so that a mistake is shown at its line."""

from dataclasses import dataclass

import yaml
from yaml.nodes import MappingNode, Node, SequenceNode


@dataclass(frozen=True, slots=True)
class Place:
    """Counted from 1."""

    line: int
    column: int


def places(text: str, pointers: list[str]) -> list[Place]:
    """One place for each pointer, in a text that `agent_config.yaml` has read already.

    A part that is missing, or that the pointer names only in the expanded form of the document, is shown at the
    nearest part around it.
    """
    root = yaml.compose(text, Loader=yaml.CSafeLoader)
    return [_place(root, pointer) for pointer in pointers]


def _place(root: Node | None, pointer: str) -> Place:
    if root is None:
        return Place(1, 1)
    node, mark = root, root.start_mark
    for part in _parts(pointer):
        found = _child(node, part)
        if found is None:
            break
        node, at = found
        mark = at.start_mark
    return Place(mark.line + 1, mark.column + 1)


def _parts(pointer: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def _child(node: Node, part: str) -> tuple[Node, Node] | None:
    """The child, and the node to point at: for a mapping its key."""
    if isinstance(node, MappingNode):
        return next(((value, key) for key, value in node.value if key.value == part), None)
    if isinstance(node, SequenceNode) and part.isdecimal() and int(part) < len(node.value):
        item = node.value[int(part)]
        return item, item
    return None
