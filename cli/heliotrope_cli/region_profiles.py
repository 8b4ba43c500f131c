"""The RegionProfiles that a command is about: of a cluster, or of a folder."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from heliotrope.api.documents import parse
from heliotrope.api.v1alpha1 import RegionProfile
from heliotrope.errors import HeliotropeError, InvalidInputError
from heliotrope_cli.commands.extras import needs


class ClusterUnreachableError(HeliotropeError):
    """The API server does not answer, or does not allow the request."""


def of_folder(folder: Path) -> list[RegionProfile]:
    """All of a folder, by name.

    Raises:
        InvalidInputError: if the folder or a file in it cannot be read, or there are none.
    """
    with needs("epp"):
        from heliotrope_epp.datalayer.documents import read_resources
    if not folder.is_dir():
        raise InvalidInputError(str(folder), "is not a folder")
    found: dict[str, RegionProfile] = {}
    for path in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")]):
        try:
            resources = read_resources(path.read_bytes())
        except OSError as error:
            raise InvalidInputError(str(path), f"cannot be read: {error.strerror or error}") from error
        except InvalidInputError as error:
            raise InvalidInputError(str(path), str(error)) from error
        for resource in resources:
            if isinstance(resource, RegionProfile):
                found.setdefault(resource.metadata.name, resource)
    if not found:
        raise InvalidInputError(str(folder), "holds no RegionProfile")
    return [found[name] for name in sorted(found)]


def of_cluster(kubeconfig: Path | None) -> list[RegionProfile]:
    """All of a cluster with their statuses, by name.

    Raises:
        ClusterUnreachableError: if they cannot be read; the message says what to do.
        InvalidInputError: if there are no credentials.
    """
    with needs("operator"):
        from heliotrope_operator.errors import ApiError, ForbiddenError, NotFoundError
    try:
        return asyncio.run(_listed(kubeconfig))
    except NotFoundError as error:
        raise ClusterUnreachableError(
            f"the cluster has no RegionProfiles: apply the CRDs (`heliotrope crds`), or name a folder ({error})"
        ) from error
    except ForbiddenError as error:
        raise ClusterUnreachableError(f"allow `list` on regionprofiles of heliotrope.io: {error}") from error
    except ApiError as error:
        raise ClusterUnreachableError(f"the API server cannot be read: {error}") from error


def chosen(profiles: Sequence[RegionProfile], names: Sequence[str]) -> list[RegionProfile]:
    """Those of these names, all without any.

    Raises:
        InvalidInputError: for a name that none has.
    """
    by_name = {profile.metadata.name: profile for profile in profiles}
    for name in names:
        if name not in by_name:
            raise InvalidInputError(name, f"is no RegionProfile; there are: {', '.join(by_name) or 'none'}")
    return [by_name[name] for name in names] if names else list(profiles)


async def _listed(kubeconfig: Path | None) -> list[RegionProfile]:
    from heliotrope_operator.reading import opened
    from heliotrope_operator.resources import RESOURCES, Kind

    found: list[RegionProfile] = []
    async with opened(kubeconfig) as kube:
        async for page in kube.pages(RESOURCES[Kind.REGION_PROFILE]):
            for document in page.items:
                kind = {"apiVersion": RESOURCES[Kind.REGION_PROFILE].api_version, "kind": Kind.REGION_PROFILE.value}
                resource = parse(kind | document, unknown_fields="ignore")
                assert isinstance(resource, RegionProfile)
                found.append(resource)
    return sorted(found, key=lambda profile: profile.metadata.name)
