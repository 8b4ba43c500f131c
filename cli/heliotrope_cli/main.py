"""The `heliotrope` command: subcommands are typed functions, behaviour lives in the packages below."""

import sys
from collections.abc import Sequence

from cyclopts import App
from rich.console import Console

import heliotrope
from heliotrope.errors import HeliotropeError
from heliotrope_cli.commands import (
    crds,
    demo,
    epp,
    evaluate,
    explain,
    ledger,
    operator,
    reproduce,
    savings,
    settle,
    train,
    trainer,
)

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
    app.command(demo.demo)
    app.command(epp.epp)
    app.command(evaluate.evaluate)
    app.command(reproduce.reproduce)
    app.command(operator.operator)
    app.command(crds.crds)
    app.command(ledger.ledger)
    app.command(settle.settle)
    app.command(explain.explain)
    app.command(savings.savings)
    app.command(trainer.trainer)
    app.command(train.train)
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
        Console(stderr=True, highlight=False).print(f"heliotrope: {error}", style="red", markup=False)
        sys.exit(EXIT_FAILED)
    except KeyboardInterrupt:
        Console(stderr=True).print("stopped")
        sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
