"""A Kubernetes API server over HTTP: reading and patching of objects.

The token is the secret of the registration, or inside a cluster that of the pod's service account, which is sent only
to the cluster's own address. It is rotated: if a server refuses it, the request is repeated with the new one. For the
pod's token, the certificate is checked against the pod's own authority, because the address may be in another domain
(kubernetes.default.svc.example). Otherwise it is checked against WEIR_KUBERNETES_CA, or the authorities that the host
trusts.
"""

import ssl
from pathlib import Path
from typing import Any

import httpx

from common import environment as variables
from common.errors import BadInput
from workers.host import egress
from workers.plants.foreign.answer_limit import answer_seconds
from workers.plants.foreign.client import JSON, PlantClient
from workers.plants.foreign.kind import PlantAddress
from workers.plants.plant import InvalidPlantResponse

IN_CLUSTER = "kubernetes.default.svc"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
MAX_PAGES = 20
AUTHORITY = "ca.crt"  # in the folder of the account
MERGE_PATCH = "application/merge-patch+json"


class AccessDenied(InvalidPlantResponse):
    """The account may not do this, but may do other things."""


class ApiServer:
    """The API server for one namespace. account: folder of a pod's service account."""

    def __init__(self, address: PlantAddress, namespace: str, account: Path = ACCOUNT) -> None:
        self.name, self._namespace = address.name, namespace
        self._address, self._account = address, account
        self._token = ""
        self._client = self._open_connection()

    def _open_connection(self) -> PlantClient:
        address = self._address
        egress.check_header_secret(address.secret_name, address.secret)
        self._token = address.secret or _read_token(address.url, self._account)
        transport = address.transport
        if transport is None and address.url.startswith("https:"):
            is_pods = bool(self._token) and not address.secret
            authorities = _create_ssl_context(address.url, self._account, is_pods)
            transport = egress.Transport(2 * answer_seconds(), verify=authorities)
        return PlantClient(address.name, address.url, self._token, transport=transport)

    def _ask(
        self, method: str, path: str, body: object = None, content_type: str = JSON, **query: str
    ) -> tuple[int, Any]:
        answer = self._client.ask(method, path, body, content_type=content_type, **query)
        own = "" if self._address.secret else _read_token(self._address.url, self._account)
        if answer[0] == 401 and own not in ("", self._token):
            self._client.close()
            self._client = self._open_connection()
            answer = self._client.ask(method, path, body, content_type=content_type, **query)
        return answer

    def get(self, group: str, path: str) -> dict[str, Any] | None:
        """Return an object or a list of the namespace, such as ("apps/v1", "deployments/shop").

        None: the object or its kind does not exist. A list is complete, however many pages the server makes of it.
        Raise `PlantUnavailable` and `InvalidPlantResponse`.
        """
        status, document = self._ask("GET", self._build_path(group, path))
        if status == 404:
            return None
        document_read = last = self._check_answer(status, document, f"get {path}")
        for _ in range(MAX_PAGES):
            metadata = last.get("metadata")
            token = str(metadata.get("continue") or "") if isinstance(metadata, dict) else ""
            if not token:
                return document_read
            status, document = self._ask("GET", self._build_path(group, path), **{"continue": token})
            last = self._check_answer(status, document, f"get {path}")
            document_read = {
                **document_read,
                "items": [*(document_read.get("items") or []), *(last.get("items") or [])],
            }
        raise InvalidPlantResponse(f"{self.name} returned more than {MAX_PAGES} pages for {path}.")

    def patch(self, group: str, path: str, changes: object) -> dict[str, Any]:
        """Merge changes into an object; None removes a field. Raise as `get` does, also if there is no object."""
        status, document = self._ask("PATCH", self._build_path(group, path), changes, MERGE_PATCH)
        return self._check_answer(status, document, f"patch {path}")

    def close(self) -> None:
        self._client.close()

    def _build_path(self, group: str, path: str) -> str:
        return f"apis/{group}/namespaces/{self._namespace}/{path}"

    def _check_answer(self, status: int, document: object, what: str) -> dict[str, Any]:
        if status in (200, 201) and isinstance(document, dict):
            return document
        said = document.get("message") if isinstance(document, dict) else None
        kind = AccessDenied if status == 403 else InvalidPlantResponse
        raise kind(f"{self.name} rejected the request to {what} ({status}): {str(said or 'no reason given')[:300]}")


def _is_in_cluster(url: str) -> bool:
    host = httpx.URL(url).host
    return host == IN_CLUSTER or host.startswith(f"{IN_CLUSTER}.")


def _read_token(url: str, account: Path) -> str:
    """Return the token of the pod's service account, only for the cluster's own address over TLS.

    Return none if the pod has no authority that certifies the receiver.
    """
    if not (url.startswith("https:") and _is_in_cluster(url) and (account / AUTHORITY).is_file()):
        return ""
    try:
        return (account / "token").read_text().strip()
    except OSError:
        return ""


def _create_ssl_context(url: str, account: Path, is_pods: bool) -> ssl.SSLContext:
    """Return the trusted authorities. is_pods: the pod's token is sent. Raise `BadInput` if a file can't be read."""
    own = account / AUTHORITY
    set_file = "" if is_pods else variables.KUBERNETES_CA.get_text()
    file = set_file or (str(own) if _is_in_cluster(url) and own.is_file() else "")
    try:
        return ssl.create_default_context(cafile=file or None)
    except (OSError, ssl.SSLError) as error:
        raise BadInput(variables.KUBERNETES_CA.name, f"must be a certificate file ({error}).") from None
