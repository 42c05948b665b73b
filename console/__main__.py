"""`python -m interlock.console`: the API and the console as a part of `interlock up`."""

from argparse import ArgumentParser

from interlock.api.server import configure_logs, serve
from interlock.console.site import create_site
from interlock.workers.settings import settings


def main() -> None:
    """Serve until a signal ends it."""
    parser = ArgumentParser("api")
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    configure_logs()
    serve(create_site, settings(), **vars(parser.parse_args()))


if __name__ == "__main__":
    main()
