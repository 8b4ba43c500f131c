"""The API server enforces every rule and every structural constraint, and agrees with the Python types on each."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from tests.support.resource_cases import Case, cases
from tests.support.resource_documents import Document, full_documents
from tests.support.resource_mutations import mutations

from heliotrope.api.v1alpha1 import KINDS

pytestmark = pytest.mark.controlplane

STRICT = {"dryRun": "All", "fieldValidation": "Strict"}


@dataclass(frozen=True)
class Answer:
    """What the API server says to a document."""

    accepted: bool
    causes: tuple[tuple[str, str], ...]
    """Field and message of each problem."""
    message: str


class Validator:
    """Puts documents to the API server without storing them."""

    def __init__(self, api: httpx.Client, stored: Mapping[str, Mapping[str, str]]) -> None:
        self._api = api
        self._stored = stored

    def spec(self, document: Document) -> Answer:
        """Create the object, as a dry run."""
        return self._answer(self._api.post(collection(document), params=STRICT, json=placed(document)))

    def status(self, document: Document) -> Answer:
        """Replace the status of a stored object of the kind, as a dry run; creation drops the status unread."""
        metadata = self._stored[document["kind"]]
        path = f"{collection(document)}/{metadata['name']}/status"
        return self._answer(self._api.put(path, params=STRICT, json=document | {"metadata": metadata}))

    def _answer(self, response: httpx.Response) -> Answer:
        body = response.json()
        if response.is_success:
            return Answer(accepted=True, causes=(), message="")
        assert response.status_code in {400, 422}, body
        causes = body.get("details", {}).get("causes", ())
        return Answer(
            accepted=False,
            causes=tuple((cause.get("field", ""), cause["message"]) for cause in causes),
            message=body["message"],
        )


def collection(document: Mapping[str, Any]) -> str:
    """The path of the document's kind; namespaced kinds in `default`."""
    definition = KINDS[document["kind"]].definition
    scope = "namespaces/default/" if definition.namespaced else ""
    return f"/apis/heliotrope.io/v1alpha1/{scope}{definition.plural}"


def placed(document: Document) -> Document:
    """The document without the namespace that it asks for."""
    return document | {"metadata": {"name": document["metadata"]["name"]}}


@pytest.fixture(scope="module")
def validator(api: httpx.Client) -> Iterator[Validator]:
    """A validator with one stored object of each kind."""
    stored = {}
    for kind, (document, *_) in full_documents().items():
        body = {key: value for key, value in document.items() if key != "status"}
        body["metadata"] = {"generateName": "stored-"}
        metadata = api.post(collection(document), json=body).raise_for_status().json()["metadata"]
        stored[kind] = {name: metadata[name] for name in ("name", "resourceVersion")}
    yield Validator(api, stored)
    for kind, metadata in stored.items():
        api.delete(f"{collection({'kind': kind})}/{metadata['name']}").raise_for_status()


@pytest.mark.parametrize("case", cases(), ids=lambda case: f"{case.kind}-{case.field}")
def test_a_rule_accepts_and_refuses_with_its_message_at_its_field(case: Case, validator: Validator) -> None:
    ask = validator.status if case.place.startswith("status") else validator.spec

    for document in case.accepted:
        answer = ask(document)
        assert answer.accepted, answer.message
    for document in case.refused:
        found = [message for field, message in ask(document).causes if field == case.field]
        assert any(message.endswith(case.message) for message in found), found


def test_every_structural_constraint_is_enforced_at_its_field(validator: Validator) -> None:
    for mutation in mutations():
        ask = validator.status if mutation.field.startswith("status") else validator.spec
        answer = ask(mutation.document)
        assert not answer.accepted, f"accepted: {mutation}"
        if mutation.what == "unknown field":
            assert f'unknown field "{mutation.field}"' in answer.message, mutation
        else:
            fields = [field for field, _ in answer.causes]
            assert any(field.startswith(mutation.field) for field in fields), f"{mutation}: {answer.causes}"
