"""The settings of connections and of transactions, as statements."""

from __future__ import annotations

from pellucid.postgres.schema import citus
from pellucid.postgres.url import Place


def milliseconds_of(timeout: float) -> int:
    """Return a timeout as the server has it; 0 would mean that locks are waited for without end."""
    return max(1, min(int(timeout * 1000), 2**31 - 1))


def of_transaction(place: Place, durability: str, timeout: float, is_cluster: bool) -> bytes:
    """Return what follows the BEGIN of a transaction: settings that do not outlive it."""
    settings = citus.begin_settings(is_cluster)
    if is_cluster or not place.prepares:
        settings.append(f"SET LOCAL lock_timeout = {milliseconds_of(timeout)}")
    if (is_cluster or not place.prepares) and durability == "full":
        settings.append("SET LOCAL synchronous_commit = on")
    return "".join(f";{setting}" for setting in settings).encode()


def of_connection(place: Place, mode: str, durability: str, timeout: float) -> bytes:
    """Return the settings of each connection; none behind a pooler, where other clients would have them."""
    if not place.prepares:
        return b""
    milliseconds = milliseconds_of(timeout)
    settings = [
        f"SET lock_timeout = {milliseconds}",
        "SET client_min_messages = error",
        "SET bytea_output = 'hex'",
    ]
    if mode == "r":
        settings.append("SET default_transaction_read_only = on")
    if durability == "full":
        settings.append("SET synchronous_commit = on")
    return ";".join(settings).encode()
