"""A stand-in GPU node from the shell.

python -m tests.support.nvml create /tmp/gpus a100-80gb h100     # prints the variables that programs need
python -m tests.support.nvml show /tmp/gpus --every 1            # what the driver holds; ends with Ctrl-C
python -m tests.support.nvml set /tmp/gpus 0 --load 800 --lost yes
python -m tests.support.nvml writes /tmp/gpus                    # who changed what, and when
python -m tests.support.nvml reboot /tmp/gpus
"""

import argparse
import contextlib
import datetime
import os
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support.nvml.node import FakeNode, GpuState, Privilege
from tests.support.nvml.products import A100_40GB, A100_80GB, H100_SXM

PRODUCTS = {"a100-40gb": A100_40GB, "a100-80gb": A100_80GB, "h100": H100_SXM}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command."""
    options = _parser().parse_args(arguments)
    if options.command == "create":
        with FakeNode.create(options.node.absolute(), *(PRODUCTS[name] for name in options.gpus)) as node:
            _say_variables(node)
        return
    with FakeNode(options.node.absolute()) as node:
        match options.command:
            case "variables":
                _say_variables(node)
            case "show":
                with contextlib.suppress(KeyboardInterrupt):
                    _show(node, options.every)
            case "set":
                _set(node, options)
            case "writes":
                for write in node.writes():
                    when = datetime.datetime.fromtimestamp(write.realtime_ns / 1e9, tz=datetime.UTC)
                    given = " ".join(str(each) for each in write.arguments)
                    outcome = "ok" if write.code == 0 else f"NVML {write.code}"
                    print(f"{when:%H:%M:%S.%f} pid {write.pid} GPU {write.gpu} {write.function} {given}: {outcome}")
            case "reboot":
                node.reboot()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.nvml", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (
        ("create", "make a node's state file"),
        ("variables", "print the variables under which programs see the node"),
        ("show", "print what the driver holds"),
        ("set", "change circumstances of a GPU"),
        ("writes", "print every call that changed a setting or tried to"),
        ("reboot", "load the driver anew"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("node", type=Path, help="the state file")
        if name == "create":
            command.add_argument("gpus", nargs="+", choices=sorted(PRODUCTS), help="one for each GPU")
        if name == "show":
            command.add_argument("--every", type=float, metavar="SECONDS", help="again and again")
        if name == "set":
            command.add_argument("gpu", type=int, help="its index")
            command.add_argument("--load", type=int, metavar="PERMILLE", help="how busy it is, from 0 to 1000")
            command.add_argument("--pids", type=int, nargs="*", help="processes with a compute context on it")
            command.add_argument("--slow-mhz", type=int, help="too hot: at most this SM clock; 0: no more")
            command.add_argument("--lost", choices=("yes", "no"), help="fallen off the bus")
            command.add_argument("--lock", type=int, nargs=2, metavar="MHZ", help="lock the SM clock, as a stranger")
            command.add_argument("--privilege", choices=[each.name.lower() for each in Privilege])
    return parser


def _set(node: FakeNode, options: argparse.Namespace) -> None:
    gpu = options.gpu
    if not 0 <= gpu < len(node):
        sys.exit(f"GPU {gpu} is none of the {len(node)} of this node")
    if options.load is not None:
        node.load(options.load, gpu)
    if options.pids is not None:
        node.processes(options.pids, gpu)
    if options.slow_mhz is not None:
        node.slow_down(options.slow_mhz or None, gpu=gpu)
    if options.lost is not None:
        node.lose(gpu, lost=options.lost == "yes")
    if options.lock is not None:
        low, high = options.lock
        node.foreign_sm_lock(low, high, gpu)
    if options.privilege is not None:
        node.privilege(Privilege[options.privilege.upper()])


def _say_variables(node: FakeNode) -> None:
    for name, value in node.environment.items():
        print(f"export {name}={shlex.quote(value)}")


def _show(node: FakeNode, every: float | None) -> None:
    while True:
        for index, state in enumerate(node.states()):
            print(f"GPU {index} {_line(state)}", flush=True)
        if every is None:
            return
        time.sleep(every)


def _line(state: GpuState) -> str:
    locks = [
        f"{name} locked {'–'.join(str(mhz) for mhz in sorted(set(lock)))}"
        for name, lock in (("SM", state.sm_lock_mhz), ("memory", state.memory_lock_mhz))
        if lock is not None
    ]
    return (
        f"{state.uuid}: {state.sm_mhz} MHz, {state.power_milliwatts / 1000:.1f} W of "
        f"{state.power_limit_milliwatts / 1000:.0f} W, {state.energy_millijoules / 1000:.1f} J, "
        f"{', '.join(locks) or 'not locked'}"
    )


if __name__ == "__main__":
    # A pipe whose reader has gone is no error.
    try:
        main()
    except BrokenPipeError:
        os._exit(0)
