"""Reads documents of our own kinds."""

from heliotrope.api import documents
from heliotrope.api.v1alpha1.common import ObjectMeta, Resource
from heliotrope.errors import InvalidInputError
from heliotrope_operator.kinds.spec import Document, Unreadable
from heliotrope_operator.resources import Key


def metadata_of(document: Document) -> ObjectMeta:
    """What is known of an object whatever its kind."""
    return ObjectMeta.model_validate(document["metadata"])


def own(_key: Key, document: Document) -> Resource | Unreadable:
    """One of our own kinds; without its status if only that cannot be read."""
    metadata = metadata_of(document)
    # The rest of the metadata, who manages which field above all, is larger than many an object.
    whole = {**document, "metadata": metadata.model_dump(by_alias=True, exclude_none=True, mode="json")}
    for readable in (whole, {name: value for name, value in whole.items() if name != "status"}):
        try:
            return documents.parse(readable, unknown_fields="ignore")
        except InvalidInputError as error:
            problem = str(error)
    return Unreadable(metadata, problem, document.get("status", {}))
