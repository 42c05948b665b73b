"""Every benchmark by name, in the order they run. One line here for each."""

from collections.abc import Callable, Mapping

from bench import accept, adr, audit, bulk, decide, dispatch, heartbeats, history, latency, memory, scheduler, single
from bench.effort import Effort
from bench.finding import Finding
from bench.progress import Rounds
from bench.stage import Stage

Benchmark = Callable[[Stage, Effort, Rounds], list[Finding]]

BENCHMARKS: Mapping[str, Benchmark] = {
    "single": single.measure,
    "adr": adr.measure,
    "bulk": bulk.measure,
    "latency": latency.measure,
    "history": history.measure,
    "dispatch": dispatch.measure,
    "memory": memory.measure,
    "scheduler": scheduler.measure,
    "heartbeats": heartbeats.measure,
    "decide": decide.measure,
    "accept": accept.measure,
    "audit": audit.measure,
}
