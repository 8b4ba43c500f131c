"""Starts the Jobs that wait for an operator which is about to go: nobody else would."""

import logging
import time
from typing import Any

from heliotrope_operator.actuation.fields import Field
from heliotrope_operator.actuation.restore import Restored, RestoreSettings, Result
from heliotrope_operator.deferral import annotations as names
from heliotrope_operator.deferral.jobs import waits
from heliotrope_operator.errors import ApiError, ConflictError, ForbiddenError, NotFoundError
from heliotrope_operator.kinds import jobs
from heliotrope_operator.kinds.jobs import job_key
from heliotrope_operator.resources import RESOURCES, Kind
from heliotrope_operator.times import format_unix
from heliotrope_operator.writes import Writes

_log = logging.getLogger(__name__)

ATTEMPTS = 5
RELEASED = "Released"
"""Reason on the Job: the operator that held it goes."""


async def release(writes: Writes, settings: RestoreSettings) -> list[Restored]:
    """Start every Job that opted in and waits; with `dry_run` say which.

    Raises:
        ApiError: if the API server does not answer. Where Jobs may not be read, deferral was off and none waits.
    """
    resource, done = RESOURCES[Kind.JOB], []
    for namespace in settings.namespaces or ("",):
        try:
            waiting = [
                each async for page in writes.kube.pages(resource, namespace) for each in page.items if _waits(each)
            ]
        except ForbiddenError:
            _log.info("Jobs may not be read, so none was held")
            continue
        done += [await _start(writes, each, dry_run=settings.dry_run) for each in waiting]
    return done


def _waits(document: dict[str, Any]) -> bool:
    metadata = document["metadata"]
    found = jobs.spec().read(job_key(metadata["namespace"], metadata["name"]), document)
    return isinstance(found, jobs.Job) and waits(found)


async def _start(writes: Writes, document: dict[str, Any], *, dry_run: bool) -> Restored:
    """Resume one Job, unless it no longer waits."""
    metadata = document["metadata"]
    where = Field(RESOURCES[Kind.JOB], metadata["namespace"], metadata["name"], "spec.suspend")
    path, problem = where.at(), ""
    if dry_run:
        return Restored(where, True, False, Result.RESTORED)
    for _ in range(ATTEMPTS):
        written = {names.STARTED: format_unix(time.time()), names.REASON: RELEASED}
        body = {
            "metadata": {"resourceVersion": document["metadata"]["resourceVersion"], "annotations": written},
            "spec": {"suspend": False},
        }
        try:
            await writes.merge(path, body)
        except ConflictError as error:
            problem = str(error)
            try:
                document = await writes.kube.get(path)
            except NotFoundError:
                return Restored(where, True, None, Result.LEFT)
            if not _waits(document):
                suspended = document["spec"].get("suspend") is True
                return Restored(where, True, suspended, Result.LEFT)
        except NotFoundError:
            return Restored(where, True, None, Result.LEFT)
        except ApiError as error:
            return Restored(where, True, True, Result.FAILED, str(error))
        else:
            return Restored(where, True, False, Result.RESTORED)
    return Restored(where, True, True, Result.FAILED, problem)
