"""The console: pages for people, at `/`. Django templates and htmx; no page needs a build step.

A page is a `pages.ConsolePage` with a template that extends `console/base.html` and uses the components listed at
the top of `static/console/css/components.css`. Apps above add pages of their own: they include their URLs in
`config.urls` and register an item in `navigation` when they are ready.
"""
