"""Every benchmark by name, in the order they run. One line here for each."""

from collections.abc import Callable, Mapping

from bench import single
from bench.effort import Effort
from bench.finding import Finding
from bench.progress import Rounds
from bench.stage import Stage

Benchmark = Callable[[Stage, Effort, Rounds], list[Finding]]

BENCHMARKS: Mapping[str, Benchmark] = {
    "single": single.measure,
}
