"""Tools that hand over to people: the call waits in the database until they have answered."""

from tools_app import ask_user
from tools_app.definitions import ToolDefinition
from tools_app.models import ToolClass

TOOLS = [
    ToolDefinition(
        name="ask_user",
        description=ask_user.DESCRIPTION,
        input_schema=ask_user.INPUT_SCHEMA,
        tool_class=ToolClass.HUMAN,
    )
]
