"""Manifests that start the guard beside an attached system. Weir shows them, and applies none."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

GUARD_FILE = Path(__file__).with_name("weir_guard.py")
FILE_NAME, NAME, IMAGE = GUARD_FILE.name, "weir-guard", "python:3.13-alpine"


@dataclass(frozen=True)
class GuardManifest:
    """A file to review and to apply. about: how it is applied, as a sentence."""

    file: str
    about: str
    text: str


def build_kubernetes_manifests(namespace: str) -> Sequence[GuardManifest]:
    """Return the guard for the autoscalers of a namespace, with its own service account."""
    program = textwrap.indent(GUARD_FILE.read_text(encoding="utf-8"), "    ")
    return (
        GuardManifest(
            "weir-guard.yaml",
            "Review the file, then run: kubectl apply -f weir-guard.yaml",
            f"""\
apiVersion: v1
kind: ServiceAccount
metadata: {{name: {NAME}, namespace: {namespace}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: {NAME}, namespace: {namespace}}}
rules:
  - {{apiGroups: [autoscaling], resources: [horizontalpodautoscalers], verbs: [list, patch]}}
  - {{apiGroups: [keda.sh], resources: [scaledobjects], verbs: [list, patch]}}
  - {{apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create]}}
  - {{apiGroups: [coordination.k8s.io], resources: [leases], resourceNames: [{NAME}], verbs: [get, patch]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: {NAME}, namespace: {namespace}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: {NAME}}}
subjects: [{{kind: ServiceAccount, name: {NAME}, namespace: {namespace}}}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {NAME}, namespace: {namespace}}}
spec:
  replicas: 1
  selector: {{matchLabels: {{app: {NAME}}}}}
  template:
    metadata: {{labels: {{app: {NAME}}}}}
    spec:
      serviceAccountName: {NAME}
      securityContext: {{runAsNonRoot: true, runAsUser: 65534, seccompProfile: {{type: RuntimeDefault}}}}
      containers:
        - name: guard
          image: {IMAGE}
          command: [python3, /guard/{FILE_NAME}, kubernetes, --namespace, {namespace}]
          resources: {{requests: {{cpu: 10m, memory: 32Mi}}, limits: {{memory: 96Mi}}}}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {{drop: [ALL]}}
          volumeMounts: [{{name: program, mountPath: /guard}}]
      volumes: [{{name: program, configMap: {{name: {NAME}}}}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: {NAME}, namespace: {namespace}}}
data:
  {FILE_NAME}: |
{program}""",
        ),
    )


def build_celery_manifests(url: str, user: str = "", prefix: str = "") -> Sequence[GuardManifest]:
    """Return the guard for a Celery app on Redis or Valkey: a Compose service, or a systemd unit, and the program.

    The password is not part of them.
    """
    parts = urlsplit(url)
    address = urlunsplit(parts._replace(netloc=f"{user}@{parts.netloc}" if user else parts.netloc))
    arguments = ["celery", address, *(["--prefix", prefix] if prefix else [])]
    secret = ["--password-file", "/run/secrets/broker_password"]
    return (
        GuardManifest(FILE_NAME, "The program. Save it beside one of the next files.", GUARD_FILE.read_text("utf-8")),
        GuardManifest(
            "compose.yaml",
            "Add the service to the app's Compose file, then start the service weir-guard",
            f"""\
services:
  {NAME}:
    image: {IMAGE}
    command: {_format_list(["python3", f"/guard/{FILE_NAME}", *arguments, *secret])}
    secrets: [broker_password]
    volumes: ["./{FILE_NAME}:/guard/{FILE_NAME}:ro"]
    user: "65534"
    read_only: true
    cap_drop: [ALL]
    restart: unless-stopped
secrets:
  broker_password: {{file: ./broker_password}}  # a file with the password of the broker, or an empty file
""",
        ),
        GuardManifest(
            f"{NAME}.service",
            f"Save {FILE_NAME} in /usr/local/lib, and this file in /etc/systemd/system. Then run:"
            f" systemctl enable --now {NAME}",
            f"""\
[Unit]
Description=Ends what Weir has set at the Celery app once Weir has stopped renewing it
After=network-online.target
Wants=network-online.target

[Service]
ExecStart=/usr/bin/python3 /usr/local/lib/{FILE_NAME} {" ".join(arguments)} --password-file %d/password
# A file with the password of the broker, or an empty file, readable by root only.
LoadCredential=password:/etc/{NAME}.password
DynamicUser=yes
ProtectSystem=strict
ProtectHome=yes
NoNewPrivileges=yes
Restart=always
RestartSec=2

[Install]
WantedBy=multi-user.target
""",
        ),
    )


def _format_list(words: Sequence[str]) -> str:
    return "[" + ", ".join(f'"{word}"' for word in words) + "]"
