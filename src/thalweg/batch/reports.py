"""What operators noted, as reports for the driver."""

from __future__ import annotations

from collections.abc import Mapping

from thalweg.errors import SourceError, StateError, ThalwegError
from thalweg.model.report import ErrorReport, ShipmentReport
from thalweg.operate.partitioners import TaskPartitioners
from thalweg.operate.shipment import Shipment


def shipped(shipments: Mapping[str, Shipment]) -> dict[str, ShipmentReport]:
    return {name: shipment.report() for name, shipment in shipments.items() if shipment.rows or shipment.stayed}


def learned(partitioners: TaskPartitioners) -> dict[str, bytes]:
    """route key -> what was learned in the task."""
    if not partitioners.made:
        return {}
    return {key: value.to_bytes() for key, value in partitioners.learned().items()}


def error_report(error: ThalwegError) -> ErrorReport:
    return ErrorReport(isinstance(error, StateError), error.message, error.detail, error.hint)


def raise_reported(error: ErrorReport | None) -> None:
    if error is not None:
        kind: type[ThalwegError] = StateError if error.is_state else SourceError
        raise kind(error.message, detail=error.detail, hint=error.hint)
