"""Differences between the settings of a link's consumer groups and those at its target, for systems whose groups have
settings. Which settings are compared is decided by the connector.

A group runs at one cluster, and its settings are those of the cluster where it runs. Therefore settings at the target
are changed only while the group has no members there; if a link leads back, also only while it has members at the
source. Otherwise two links could exchange their values forever. A group that the target does not have is not compared:
it is created with the settings of the source.
"""

from collections.abc import Collection, Mapping, Sequence

from trueup.state.common.patterns import matches
from trueup.state.replication.config_sync import Action, ChangeKind

Configs = Mapping[str, str]
"""Settings of a group on one server; one that is missing has its default."""
ABSENT = "none"
"""How a setting that is not set is shown."""


def diff_groups(
    source: Mapping[str, Sequence[Configs]], target: Mapping[str, Sequence[Configs]], exclude: Collection[str] = ()
) -> list[Action]:
    """The actions on groups of the target, by name. ``source`` and ``target``: settings on each server in order. Those
    of the first server of the source are wanted on every server of the target that has the group."""
    actions = []
    for group in sorted(source.keys() & target.keys()):
        if source[group] and (changed := _changed(source[group][0], target[group], exclude)):
            configs = {name: value for name, (_, value) in changed.items()}
            shown = ", ".join(f"{name} {before} > {configs[name] or ABSENT}" for name, (before, _) in changed.items())
            text, reason = f"group {group}: {shown}", "alignment.group-differs"
            actions.append(Action(ChangeKind.SET_GROUP, "", reason, text, configs=configs, group=group))
    return actions


def _changed(
    configs: Configs, servers: Sequence[Configs], exclude: Collection[str]
) -> dict[str, tuple[str, str | None]]:
    """Each setting that differs on a server: its first other value there, and the wanted one (None: none)."""
    names = sorted({*configs, *(name for server in servers for name in server)})
    other = {name: [server.get(name) for server in servers if server.get(name) != configs.get(name)] for name in names}
    return {
        name: (values[0] or ABSENT, configs.get(name))
        for name, values in other.items()
        if values and not matches(exclude, name)
    }


def may_change(here: bool | None, there: bool | None, back: bool) -> bool:
    """Whether the settings of the source count. ``here`` and ``there``: whether the group has members at the source and
    at the target (None: unknown); ``back``: a link leads back."""
    return there is False and (here is True or not back)
