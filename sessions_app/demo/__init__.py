"""`manage.py demo` and `manage.py dev`: what a newcomer runs first.

story      the demo from start to `demo: ok`: two turns of one agent, three ends of its workers
acts       the three ends: a loop killed, a whole tree killed, a planned stop
follower   follows a session through the API, and sees which worker holds it
timeline   what is printed while it happens
checks     what must be true of the log afterwards
agent      the agent: scripted, or a real model with the same tools
model      TENURE_DEMO_MODEL
processes  child processes that never outlive their parent
api        the few calls of the REST API that are needed
serve      `manage.py dev`
"""
