"""The names of the queues. What starts the nodes imports this alone: `config.py` takes kombu, which is slow."""

TRIGGERS, SWEEPS, EFFECTS = "triggers", "sweeps", "effects"
WORK = "work"  # tasks of runs. The messages name no task; claims in PostgreSQL say which worker has which task
EVIDENCE = "evidence"  # one long sweep, which would keep a trigger node from its triggers for minutes
DELIVERIES = "deliveries"  # subscriptions, whose endpoints may be slow: a thread for each of several at once
GATES = "gates"  # effects that may take hours, kept apart so that a notice never waits behind them
