"""Transcripts from elsewhere: read in three formats, repaired, and stored as the first entries of a session.

`reading` turns what a client sent into the messages of `sessions_app.engine.resume`, or says with JSON
pointers what is wrong with it; `storing` makes entries of them.
"""
