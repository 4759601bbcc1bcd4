"""The console's part that knows tools: cards of calls in a session's timeline, and the inbox."""
