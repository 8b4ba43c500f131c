"""The `heliotrope` command: subcommands are typed functions, behaviour lives in the packages below."""

import sys
from collections.abc import Sequence

from cyclopts import App
from rich.console import Console

import heliotrope
from heliotrope.errors import HeliotropeError
from heliotrope_cli import commands

COMMANDS = (
    "agent",
    "demo",
    "calibrate",
    "epp",
    "evaluate",
    "reproduce",
    "simulate",
    "operator",
    "restore",
    "hub",
    "crds",
    "ledger",
    "settle",
    "status",
    "explain",
    "forecast",
    "savings",
    "trainer",
    "train",
)
"""Each a module of `heliotrope_cli.commands` with a function of its name, loaded when it is asked for: the node agent
must not carry the solvers of others in its memory."""

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130


def build_app() -> App:
    """The command with its subcommands."""
    app = App(
        name="heliotrope",
        help="Serve LLM requests with the least energy and carbon that their latency and quality promises allow.",
        version=heliotrope.__version__,
        version_flags=["--version"],
    )
    for name in COMMANDS:
        app.command(f"{commands.__name__}.{name}:{name}")
    app.command(version)
    return app


def version() -> None:
    """Print the version."""
    print(heliotrope.__version__)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; errors that we raise on purpose are one sentence, not a traceback."""
    try:
        build_app()(arguments)
    except HeliotropeError as error:
        # Lines are the terminal's to break: a path that is broken here cannot be copied or searched for.
        Console(stderr=True, highlight=False).print(f"heliotrope: {error}", style="red", markup=False, soft_wrap=True)
        sys.exit(EXIT_FAILED)
    except KeyboardInterrupt:
        Console(stderr=True).print("stopped")
        sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
