"""`GET /models`: which providers and models this deployment offers."""

from typing import Annotated, TypedDict

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from sessions_app.api import shapes
from sessions_app.api.base import ApiView
from sessions_app.api.openapi import list_of, operation
from sessions_app.providers import catalogue


class ModelShape(TypedDict):
    """A model of the price list; what it does not know is null. Prices in USD for a million tokens."""

    name: str
    context_window: Annotated[int | None, Field(description="tokens")]
    input_price: shapes.Money | None
    output_price: shapes.Money | None


class ProviderShape(TypedDict):
    """`configured`: the environment has a key, in one of `variables`. Others need a `credential` in the config."""

    provider: str
    configured: bool
    variables: list[str]
    models: list[ModelShape]


class ModelsView(ApiView):
    @operation(
        "list_models", "List providers and models", tag="configs", answers={200: list_of(ProviderShape)}
    )
    def get(self, request: Request) -> Response:
        """The providers with their own protocols, others that have a key here, and the models with list prices.

        A config may also name models that are not listed, other providers that the model library knows, and any
        compatible server.
        """
        return Response({"data": [_provider(found) for found in catalogue.providers()]})


def _provider(found: catalogue.KnownProvider) -> ProviderShape:
    return {
        "provider": found.name,
        "configured": found.configured,
        "variables": list(found.variables),
        "models": [_model(model) for model in found.models],
    }


def _model(found: catalogue.KnownModel) -> ModelShape:
    return {
        "name": found.name,
        "context_window": found.context_window,
        "input_price": shapes.money(found.input_price),
        "output_price": shapes.money(found.output_price),
    }
