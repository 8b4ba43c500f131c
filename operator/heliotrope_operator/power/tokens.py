"""Bearer tokens for lists of demand events, and to whom they may be sent.

Tenants write CarbonPolicies, and so both the address and the name of the Secret. A Secret must therefore be in the
operator's own namespace, where tenants cannot write, and say itself where it may be sent: the annotation
`heliotrope.io/demand-origin` names the one origin (scheme, host and port). Without it a tenant could have any Secret of
the operator sent to an address of theirs.
"""

import httpx

from heliotrope.api.v1alpha1.common import SecretKeyRef
from heliotrope.errors import CredentialsMissingError
from heliotrope.providers.secrets import Secret, secret_of
from heliotrope_operator.kube import Kube
from heliotrope_operator.secrets import OwnSecrets, key_of

ORIGIN_ANNOTATION = "heliotrope.io/demand-origin"


async def demand_token(kube: Kube, namespace: str, ref: SecretKeyRef, url: str) -> Secret:
    """The token as it is now, if it may be sent to the address.

    Args:
        kube: for reading.
        namespace: the operator's own.
        ref: which Secret and key.
        url: the address that is about to be asked.

    Raises:
        CredentialsMissingError: if there is no such token, or it may not be sent there. No message holds a value.
        SignalUnavailableError: if the API server gives no answer.
    """
    where = f"Secret {namespace}/{ref.name}"
    document = await OwnSecrets(kube, namespace).document(ref)
    allowed = ((document.get("metadata") or {}).get("annotations") or {}).get(ORIGIN_ANNOTATION)
    if allowed is None or origin(allowed) != origin(url):
        raise CredentialsMissingError(
            f"{where} may not be sent to {origin(url)}: an administrator allows it with the annotation "
            f"{ORIGIN_ANNOTATION}: {origin(url)}"
        )
    if ref.key not in (document.get("data") or {}):
        raise CredentialsMissingError(f"{where} has no key {ref.key}")
    key = f"{where}, key {ref.key},"
    return secret_of(key_of(document, key, ref.key), key)


def origin(url: str) -> str:
    """Scheme, host and port of an address, as RFC 6454 compares them; empty if it is none."""
    try:
        parsed = httpx.URL(url.strip())
    except httpx.InvalidURL:
        return ""
    if parsed.scheme not in ("http", "https") or not parsed.host:
        return ""
    port = parsed.port or {"http": 80, "https": 443}[parsed.scheme]
    host = f"[{parsed.host}]" if ":" in parsed.host else parsed.host
    return f"{parsed.scheme}://{host.lower()}:{port}"
