"""The shape of API answers: which fields they have, and of what JSON type."""

import json
from typing import Any

import httpx


async def shape_of(http: httpx.AsyncClient, url: str, path: str, body: dict[str, Any]) -> list[set[str]]:
    """Status and fields of an answer; of a stream, once for each run of chunks that look alike."""
    response = await http.post(f"{url}{path}", json=body)
    status = {f"status {response.status_code}", response.headers["content-type"].partition(";")[0]}
    if not body.get("stream"):
        return [status, fields(response.json())]
    shapes = [status]
    for event in response.text.removesuffix("\n\n").split("\n\n"):
        data = event.removeprefix("data: ")
        shape = {data} if data == "[DONE]" else fields(json.loads(data))
        if shape != shapes[-1]:
            shapes.append(shape)
    return shapes


def fields(value: Any, path: str = "") -> set[str]:
    """The paths of all values with their types; an object's name has none but its members'."""
    if isinstance(value, dict):
        return {leaf for key, member in value.items() for leaf in fields(member, f"{path}.{key}")} or {f"{path}: {{}}"}
    if isinstance(value, list):
        return {leaf for member in value for leaf in fields(member, f"{path}[]")} or {f"{path}: []"}
    return {f"{path}: {type(value).__name__}"}
