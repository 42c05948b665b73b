"""All benchmarks by name, in the order they run, one line each."""

from collections.abc import Callable, Mapping

from bench import (
    accept,
    at_rest,
    audit,
    bulk,
    claiming,
    confining,
    decide,
    dispatch,
    effects,
    following,
    heartbeats,
    history,
    latency,
    lateness,
    memory,
    over_http,
    pages,
    plain,
    scheduler,
    single,
)
from bench.effort import Effort
from bench.finding import Finding
from bench.progress import Rounds
from bench.stage import Stage

Benchmark = Callable[[Stage, Effort, Rounds], list[Finding]]

BENCHMARKS: Mapping[str, Benchmark] = {
    "single": single.measure,
    "plain": plain.measure,
    "effects": effects.measure,
    "bulk": bulk.measure,
    "latency": latency.measure,
    "lateness": lateness.measure,
    "history": history.measure,
    "dispatch": dispatch.measure,
    "memory": memory.measure,
    "scheduler": scheduler.measure,
    "heartbeats": heartbeats.measure,
    "decide": decide.measure,
    "accept": accept.measure,
    "http": over_http.measure,
    "claims": claiming.measure,
    "pages": pages.measure,
    "events": following.measure,
    "audit": audit.measure,
    "sandbox": confining.measure,
    "rest": at_rest.measure,
}
