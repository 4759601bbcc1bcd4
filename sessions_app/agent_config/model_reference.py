"""Which model an agent uses: `provider:model`, or the same written out with its server and settings."""

from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr, model_validator
from pydantic_core import PydanticCustomError

from sessions_app.agent_config.shape import Part
from sessions_app.agent_config.values import Count, Name, Url, Words

Penalty = Annotated[StrictFloat, Field(ge=-2, le=2, allow_inf_nan=False)]


class ModelSettings(Part):
    """What is asked of the model; the adapter translates it for each provider."""

    max_tokens: Count | None = None
    temperature: Annotated[StrictFloat, Field(ge=0, le=2, allow_inf_nan=False)] | None = None
    top_p: Annotated[StrictFloat, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    top_k: Count | None = None
    seed: StrictInt | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    stop_sequences: Annotated[list[Words], Field(max_length=16)] | None = None
    parallel_tool_calls: StrictBool | None = None
    reasoning: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None


class ModelReference(Part):
    """A provider's model. `base_url` is any compatible server; `credential` names a secret."""

    provider: Annotated[StrictStr, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}$")]
    name: Annotated[StrictStr, Field(pattern=r"^\S{1,256}$")]
    base_url: Url | None = None
    credential: Name | None = None
    settings: ModelSettings | None = None

    @model_validator(mode="before")
    @classmethod
    def _expand(cls, data: Any) -> Any:
        if not isinstance(data, str):
            return data
        provider, colon, name = data.partition(":")
        if not (provider and colon and name):
            raise PydanticCustomError("malformed", "a model is written provider:model, such as openai:gpt-5")
        return {"provider": provider, "name": name}
