"""Shipments in two versions, of which the newer needs more."""

from collections.abc import Mapping

from interlock.workflows.definition import Definition
from tests.typed_machines import SHIPMENT, Heavier, Longer, changed

WORKFLOWS: Mapping[tuple[str, str], Definition] = {
    ("shipment", "1.0.0"): SHIPMENT,
    ("shipment", "2.0.0"): changed("2.0.0", context=Heavier, data={"start": Longer}),
}
