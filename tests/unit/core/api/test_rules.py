"""Every rule and every structural constraint holds in Python, at the field and with the message that users read."""

import pytest
from tests.support.resource_cases import Case, cases, declared_rules
from tests.support.resource_documents import Document
from tests.support.resource_mutations import mutations

from heliotrope.api.documents import parse
from heliotrope.errors import InvalidInputError


def test_every_rule_of_the_crds_has_cases() -> None:
    covered = {(case.kind, case.place, case.message) for case in cases() if case.refused}

    assert covered == set(declared_rules())


@pytest.mark.parametrize("case", cases(), ids=lambda case: f"{case.kind}-{case.field}")
def test_a_rule_accepts_and_refuses(case: Case) -> None:
    for document in case.accepted:
        parse(document)
    for document in case.refused:
        with pytest.raises(InvalidInputError) as caught:
            parse(document)
        assert caught.value.path == case.field
        assert caught.value.problem.startswith(case.message)


def test_every_structural_constraint_refuses_at_its_field() -> None:
    for mutation in mutations():
        path = _refused_at(mutation.document)
        assert path is not None, f"accepted: {mutation}"
        assert path.startswith(mutation.field) or mutation.field.startswith(path), f"{mutation}: reported at {path}"


def _refused_at(document: Document) -> str | None:
    try:
        parse(document)
    except InvalidInputError as error:
        return error.path
    return None
