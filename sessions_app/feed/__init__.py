"""The live feed: entries in order, from a cursor on, and then as they come.

    snapshots, cursors   where a reader stands (pure)
    filters              what of a project's feed a reader wants (pure)
    reading              the two queries: a page of a session's log, a page of a project's
    channel              one per session or project that somebody follows: reads once for all of its followers
    hub                  one per web process: hears doorbells, polls in case it didn't, checks access again
    follower             one per connection: catches up by itself, then goes along with its channel
    previews             pieces of replies on their way, beside the entries
    frames               what clients say over a socket
    gate                 how fast the other end takes what is sent

A follower has no queue. What is new lies once in its channel, in a ring of bounded size; a follower that falls
behind the ring reads the database again from where it stands. So memory is bounded, and nothing is left out
however slow somebody reads.
"""
