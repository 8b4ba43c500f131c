"""Plugin types of other distributions, found by entry point."""

from importlib.metadata import entry_points

from heliotrope.errors import InvalidInputError
from heliotrope_epp.plugins.registry import PluginRegistry

ENTRY_POINT_GROUP = "heliotrope.plugins"
"""Each entry names a function that takes the registry and registers its types."""


def register_installed(registry: PluginRegistry) -> tuple[str, ...]:
    """Let every installed distribution with entry points of the group add its types.

    Returns:
        The names of the entry points, sorted.

    Raises:
        InvalidInputError: if one cannot be loaded or does not register; a broken plugin stops the start.
    """
    found = sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda entry: entry.name)
    for entry in found:
        try:
            register = entry.load()
            register(registry)
        except InvalidInputError:
            raise
        except Exception as error:
            problem = f"entry point {entry.value} failed: {type(error).__name__}: {error}; fix or uninstall it"
            raise InvalidInputError(f"plugin {entry.name}", problem) from error
    return tuple(entry.name for entry in found)
