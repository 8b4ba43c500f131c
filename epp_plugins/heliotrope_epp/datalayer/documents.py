"""What files hold: endpoints in llm-d's file-discovery format, and our resources in YAML."""

import re
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import Any

import yaml

from heliotrope.api.documents import AnyResource, parse
from heliotrope.api.v1alpha1.common import GROUP
from heliotrope.errors import InvalidInputError
from heliotrope_epp.datalayer.endpoint import Endpoint

MAX_FILE_BYTES = 1024 * 1024
"""Of one file, as llm-d limits its file discovery."""

_DEFAULT_NAMESPACE = "default"
_ENDPOINT_KEYS = frozenset({"name", "namespace", "address", "port", "labels", "nodeAddress"})
_LOADER: type[yaml.CSafeLoader | yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_endpoints(data: bytes) -> tuple[Endpoint, ...]:
    """The endpoints of a file `endpoints: [{name, namespace, address, port, labels}]`, YAML or JSON.

    `nodeAddress` is our addition: where the exporter of the endpoint's node listens. Stricter than llm-d: an unknown
    key, a name used twice or an address used twice is refused.

    Raises:
        InvalidInputError: the path of the bad field and what to write there.
    """
    documents = [document for document in _documents(data) if document is not None]
    if len(documents) != 1 or not isinstance(documents[0], Mapping) or set(documents[0]) != {"endpoints"}:
        raise InvalidInputError("", "must be one document with the key endpoints and no other")
    entries = [] if documents[0]["endpoints"] is None else documents[0]["endpoints"]
    if not isinstance(entries, list):
        raise InvalidInputError("endpoints", "must be a list")
    names: dict[str, int] = {}
    addresses: dict[str, int] = {}
    endpoints = []
    for i, entry in enumerate(entries):
        endpoint = _endpoint(entry, f"endpoints[{i}]")
        for kind, value, seen in (("name", endpoint.key, names), ("address", endpoint.host_port, addresses)):
            first = seen.setdefault(value, i)
            if first != i:
                raise InvalidInputError(f"endpoints[{i}].{kind}", f"{value} is that of endpoints[{first}] already")
        endpoints.append(endpoint)
    return tuple(endpoints)


def read_resources(data: bytes) -> tuple[AnyResource, ...]:
    """Our resources in a YAML file of one or more documents; other kinds of documents are passed over.

    Raises:
        InvalidInputError: the document's number, the path of the bad field and what is wrong with it.
    """
    resources: list[AnyResource] = []
    for number, document in enumerate(_documents(data), start=1):
        if not isinstance(document, Mapping) or not str(document.get("apiVersion", "")).startswith(f"{GROUP}/"):
            continue
        try:
            resources.append(parse(document))
        except InvalidInputError as error:
            raise InvalidInputError(f"document {number}", str(error)) from error
    return tuple(resources)


def _documents(data: bytes) -> Iterator[Any]:
    try:
        yield from yaml.load_all(data, _LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}" if mark is not None else ""
        raise InvalidInputError(where, f"is not YAML: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidInputError("", f"is not YAML: {error}") from error


def _endpoint(entry: Any, path: str) -> Endpoint:
    if not isinstance(entry, Mapping):
        raise InvalidInputError(path, "must be an object with name, address and port")
    unknown = [str(key) for key in entry if key not in _ENDPOINT_KEYS]
    if unknown:
        known = ", ".join(sorted(_ENDPOINT_KEYS))
        raise InvalidInputError(f"{path}.{unknown[0]}", f"unknown field; the fields are {known}")
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise InvalidInputError(f"{path}.name", "is required and must be a string")
    namespace = entry.get("namespace") or _DEFAULT_NAMESPACE
    if not isinstance(namespace, str):
        raise InvalidInputError(f"{path}.namespace", "must be a string")
    node = entry.get("nodeAddress")
    return Endpoint(
        name=name,
        namespace=namespace,
        address=_address(entry.get("address"), f"{path}.address"),
        port=_port(entry.get("port"), f"{path}.port"),
        labels=_labels(entry.get("labels"), f"{path}.labels"),
        node_address=None if node is None else _address(node, f"{path}.nodeAddress"),
        pod=name,
    )


def _address(value: Any, path: str) -> str:
    try:
        return str(ip_address(value if isinstance(value, str) else ""))
    except ValueError:
        raise InvalidInputError(path, f"{value!r} is not an IP address; host names are not resolved") from None


def _port(value: Any, path: str) -> int:
    text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 1 <= int(text) <= 65_535:
        raise InvalidInputError(path, f'{value!r} is not a port; write for instance "8000"')
    return int(text)


def _labels(value: Any, path: str) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidInputError(path, "must be an object of strings")
    for key, text in value.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise InvalidInputError(f"{path}.{key}", f'{text!r} must be a string, in quotes: "{text}"')
    return dict(value)
