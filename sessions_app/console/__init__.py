"""The console: pages for people, at `/`. Django templates and htmx; no page needs a build step.

Apps above add their own pages: they subclass `pages.ConsolePage`, include their URLs in `config.urls` and
register an item in `navigation` when they are ready.
"""
