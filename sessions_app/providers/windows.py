"""How many tokens a model reads at most.

The maintained price list knows it for most models of the large providers. It is imported on first use, and
never for the scripted provider. For a model that it does not know the deployment says how much to expect
(`TENURE_CONTEXT_WINDOW`).
"""

from functools import lru_cache

from sessions_app.providers.prices import PRICED_AS
from sessions_app.providers.registry import SCRIPTED


@lru_cache(maxsize=1000)
def context_window(provider: str, model: str) -> int | None:
    """The size of a model's context window in tokens; None where it is not known."""
    if provider == SCRIPTED:
        return None
    from genai_prices import data_snapshot

    snapshot = data_snapshot.get_snapshot()
    try:
        _, found = snapshot.find_provider_model(model, None, PRICED_AS.get(provider, provider), None)
    except LookupError:
        return None
    return found.context_window
