"""The isolation groups in the custom metadata of a ledger.

Pulsar writes its class and its groups there (EnsemblePlacementPolicyConfig, IsolatedBookieEnsemblePlacementPolicy of
Pulsar 4.2). The text of a ledger is a JSON list of the primary and the secondary groups, or `BROKEN`. Without a policy
there, it is the namespace as a JSON string, or empty for ledgers of other clients.
"""

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

KEY = "EnsemblePlacementPolicyConfig"
POLICY_CLASS = "org.apache.pulsar.bookie.rackawareness.IsolatedBookieEnsemblePlacementPolicy"
PRIMARY, SECONDARY = "isolationBookieGroups", "secondaryIsolationBookieGroups"
BROKEN = "?"
"""The metadata have a policy without class or without properties. Pulsar's class fails for them."""


def isolation_of(custom: Mapping[str, bytes]) -> str:
    """The text of custom metadata."""
    return _text(custom[KEY]) if KEY in custom else _namespace(custom)


def namespace_text(namespace: str) -> str:
    """The text of ledgers of a namespace (tenant/namespace) whose metadata have no groups."""
    return json.dumps(namespace)


@lru_cache(maxsize=4_096)
def namespace_in(text: str) -> str:
    """The namespace of a text; empty if it is not that of a namespace."""
    return str(json.loads(text)) if text.startswith('"') else ""


def isolation_text(primary: Iterable[str], secondary: Iterable[str] = ()) -> str:
    """The text of these groups."""
    return json.dumps([sorted({*primary}), sorted({*secondary})])


@lru_cache(maxsize=4_096)
def groups_in(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """The primary and the secondary groups of a text that is neither empty nor `BROKEN`."""
    primary, secondary = json.loads(text)
    return frozenset(primary), frozenset(secondary)


def _namespace(custom: Mapping[str, bytes]) -> str:
    """By the name of the managed ledger (LedgerMetadataUtils)."""
    name = custom.get("pulsar/managed-ledger", b"").decode(errors="replace").split("/")
    pulsars = custom.get("application") == b"pulsar" and len(name) > 2
    return namespace_text("/".join(name[:2])) if pulsars else ""


@lru_cache(maxsize=4_096)
def _text(config: bytes) -> str:
    try:
        decoded = json.loads(config)
    except (ValueError, RecursionError):
        return ""  # Pulsar's class uses the groups of the client
    if not isinstance(decoded, dict):
        return ""
    policy, properties = decoded.get("policyClass"), decoded.get("properties")
    if policy not in (None, POLICY_CLASS):
        return ""
    if policy is None or not isinstance(properties, dict):
        return BROKEN
    return isolation_text(_groups(properties.get(PRIMARY)), _groups(properties.get(SECONDARY)))


def _groups(value: Any) -> list[str]:
    """Names separated by commas, as text or as a list (ConfigurationStringUtil.castToString); spaces are kept."""
    text = ",".join(map(str, value)) if isinstance(value, list) else value if isinstance(value, str) else ""
    return [name for name in text.split(",") if name]
