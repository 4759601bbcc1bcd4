"""Real models, through Pydantic AI's direct layer.

    adapter.py     one call: request -> stream -> Reply or ModelCallFailed
    messages.py    our message dicts <-> the library's messages
    models.py      a library model for a provider name, on shared HTTP clients
    transport.py   between SDK and network: corrects streams, watches for the end event and for stalls
    correctors.py  what is corrected, per wire protocol; pure
    sse.py         server-sent events, bytes to events and back; pure
    stops.py       each protocol's stop reasons in our terms; pure
    errors.py      everything the SDKs raise, as ModelCallFailed

Importing `models` or `adapter` imports provider SDKs (seconds, over 100 MB): only
`sessions_app.providers.registry` does it, on first use or before a worker forks.
"""
