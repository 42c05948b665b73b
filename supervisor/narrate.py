"""What happens to the parts, one line each: on the terminal of `interlock up`, in `supervisor.log` when detached."""

from collections.abc import Callable

from supervisor.child import Report


def narrator(say: Callable[[str], None]) -> Callable[[list[Report]], None]:
    """A `watch` for `supervise` that says each change of state once."""
    said: dict[str, str] = {}

    def tell(parts: list[Report]) -> None:
        for part in parts:
            if said.get(part.name, "stopped") != part.state:
                said[part.name] = part.state
                say(f"{part.name} {part.state}" + (f": {part.detail}" if part.state == "restarting" else ""))

    return tell
