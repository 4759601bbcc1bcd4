"""`manage.py soak`: many sessions over bad wires, and what must be true of them afterwards.

    story    from the first process to `soak: ok`
    plans    what each session says, seeded
    talk     says it through the REST API, as clients do
    mock     the third-party mock of the providers, and what it answers
    proxy    stands in front of it: keeps each request as it came, answers half of them with a fault
    faults   which fault each request meets, seeded, and what it does to an answer
    monitor  rows while it runs, and the kills
    judge    the identities, the rules, and the turns that gave up

Workers, web process, database and HTTP are real. The seed decides what is said and which fault the nth request
of a session meets; when things happen is left to the machine.
"""
