"""Which session may use which machine."""

from machines_app.models import MachineBinding
from sessions_app import entry_kinds, ids
from sessions_app.log import NewEntry
from sessions_app.models import Session


def release_all(session: Session) -> list[NewEntry]:
    """A session is archived, and locked: it gives its machines back. Returns what its log should say."""
    bindings = MachineBinding.objects.filter(session=session).order_by("machine_id")
    machines = list(bindings.values_list("machine_id", flat=True))
    bindings.delete()
    return [
        NewEntry(
            kind="machine_detached", data=entry_kinds.MachineDetached(machine=ids.encode("mch", machine))
        )
        for machine in machines
    ]
