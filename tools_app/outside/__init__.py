"""Tools of Tenure itself that reach out of it: `web_fetch` and `web_search`, and what HTTP tools share with them."""
