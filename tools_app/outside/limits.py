"""Numbers that a model is told in the schemas of `web_fetch` and `web_search`."""

MAX_ADDRESS = 2000
"""Characters of an address."""
MAX_QUERY = 400
"""Characters of a search; Brave takes no more."""
MAX_RESULTS = 20
DEFAULT_RESULTS = 8
