"""Rows of log directories for the API: clusters, directories and due actions."""

from collections import Counter
from collections.abc import Iterable

from trueup.state.logdirs.lifecycle import UNDER_WAY, Relocation
from trueup.state.logdirs.plan import Move
from trueup.state.logdirs.snapshot import Copying, Directory, ObservedBroker
from trueup.state.logdirs.verdicts import Decision, cordon_name, move_name
from trueup.streams.logdirs.reconciler import BrokerState, LogDirsReconciler
from trueup.streams.logdirs.signs import LogDirsStatus
from trueup.streams.rows import Row
from trueup.streams.runtime.format import size
from trueup.streams.runtime.stream import AWAITING, PlanRow


def strategy_of(dirs: LogDirsReconciler, state: BrokerState) -> str:
    """The strategy that is in effect."""
    return state.decision.strategy if state.decision else dirs.policy.strategy


def cluster_status(dirs: LogDirsReconciler) -> LogDirsStatus:
    """The status of one cluster."""
    policy, states = dirs.policy, list(dirs.known.values())
    reasons = (f"broker {broker}: {state.reason}" for broker, state in dirs.known.items() if state.rule or state.error)
    rules = Counter(state.rule for state in states if state.rule)
    decisions = [state.decision for state in states if state.decision]
    planned = [move for decision in decisions for move in decision.moves]
    seen = [state.observed for state in states if state.observed]
    return LogDirsStatus(
        kafka=dirs.name,
        mode=policy.mode,
        strategy=policy.strategy,
        paused=policy.paused,
        brokers=len(states),
        directories=sum(len(observation.directories) for observation in seen),
        skew=max((observation.skew for observation in seen), default=0.0),
        rules=dict(rules),
        planned=len(planned),
        planned_bytes=sum(move.bytes for move in planned),
        moving=sum(len(observation.copying) for observation in seen),
        at_ms=dirs.at_ms,
        reason=dirs.problem or next(reasons, ""),
    )


def directory_row(dirs: LogDirsReconciler, state: BrokerState, d: Directory) -> Row:
    """The row of one directory."""
    assert state.observed is not None, "its directory is given"
    whose = "ours" if d.path in state.ours.cordoned else "others"
    return {
        "kafka": dirs.name,
        "broker": state.observed.broker,
        **d._asdict(),
        "used": d.total - d.usable if d.total >= 0 else -1,
        "cordoned": whose if d.cordoned else "",
        "strategy": strategy_of(dirs, state),
        "skew": state.observed.skew,
        "rule": state.rule,
        "reason": state.reason,
        "at_ms": state.observed.at_ms,
    }


def plan_rows(dirs: LogDirsReconciler) -> list[PlanRow]:
    """Moves in progress, and changes that are due or wait for approval."""
    rows = list[PlanRow]()
    for broker, state in dirs.known.items():
        rows += [
            _under_way(dirs.name, broker, move, state.observed) for move in state.ours.moves if move.stage in UNDER_WAY
        ]
        if state.decision is not None:
            rows += _cordons(dirs, broker, state.decision, state)
            sooner = state.decision.skew
            for move in state.decision.moves:
                rows.append(_due(dirs, move, sooner, state))
                sooner = move.skew
    return rows


def _due(dirs: LogDirsReconciler, move: Move, sooner: float, state: BrokerState) -> PlanRow:
    name = move_name(move.broker, move)
    refused = any(m.what == move.what and m.stage == "refused" for m in state.ours.moves)
    stage = "refused" if refused else AWAITING if dirs.waits(move.broker, name) else "planned"
    text = f"{size(move.bytes)} from {move.source} to {move.target}; skew {sooner:.0%}, then {move.skew:.0%}"
    evidence = {
        "broker": move.broker,
        "from": move.source,
        "to": move.target,
        "bytes": move.bytes,
        "skew_before": sooner,
        "skew_after": move.skew,
        "copied": 0,
    }
    return _move(dirs.name, name, move, text, stage, evidence)


def _under_way(name: str, broker: int, move: Relocation, seen: ObservedBroker | None) -> PlanRow:
    copy = _copy(move, seen.copying if seen else ())
    text = f"{size(copy)} of {size(move.bytes)} from {move.source} to {move.target}"
    evidence = {"broker": broker, "from": move.source, "to": move.target, "bytes": move.bytes, "copied": copy}
    return _move(name, move_name(broker, move), move, text, str(move.stage), evidence)


def _move(kafka: str, name: str, move: Move | Relocation, text: str, stage: str, evidence: Row) -> PlanRow:
    about = {"topic": f"{move.topic}-{move.partition}", "broker": f"{kafka}/{evidence['broker']}"}
    return PlanRow(f"{kafka}/{name}", "move", "logdirs.uneven", text, stage, about, evidence=evidence)


def _copy(move: Relocation, copying: Iterable[Copying]) -> int:
    return next((c.copied for c in copying if (c.topic, c.partition) == (move.topic, move.partition)), 0)


def _cordons(dirs: LogDirsReconciler, broker: int, decision: Decision, state: BrokerState) -> list[PlanRow]:
    present = {d.path for d in state.observed.directories if d.cordoned} if state.observed else set()
    done = decision.cordon == decision.steer and not state.error
    if decision.steer == present or dirs.policy.paused or done:
        return []
    name = cordon_name(broker, decision.steer)
    stage = AWAITING if decision.steer - present and dirs.waits(broker, name) else "planned"
    text = f"excluded from new partitions: {', '.join(sorted(decision.steer)) or 'no directory'}"
    evidence = {"broker": broker, "paths": sorted(decision.steer)}
    about = {"broker": f"{dirs.name}/{broker}"}
    return [PlanRow(f"{dirs.name}/{name}", "cordon", "logdirs.steer", text, stage, about, evidence=evidence)]
