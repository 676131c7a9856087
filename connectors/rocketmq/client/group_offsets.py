"""Offsets and members of consumer groups. Each master has the offsets of its own queues. Raises like
`RocketMqClient.ask`."""

from collections.abc import Iterable, Mapping

from trueup.connectors.contract import LogId
from trueup.connectors.rocketmq.client.cluster import RocketMqClient
from trueup.connectors.rocketmq.client.codes import RequestCode, ResponseCode
from trueup.connectors.rocketmq.client.connection import RocketMqRequest, RocketMqResponse
from trueup.state.common.errors import BadBytes, Stop


def offset(client: RocketMqClient, group: str, log: LogId) -> int | None:
    """The committed offset of a group: the next one that it reads; None if it never committed."""
    return offset_of(client.ask(log.place, offset_request(group, log)))


def offset_request(group: str, log: LogId) -> RocketMqRequest:
    """Ask for the committed offset of a group; see `offset_of`."""
    fields = {**_place(group, log), "setZeroIfNotFound": False}
    doing, accepted = f"read the offset of group {group} in {log}", {ResponseCode.OK, ResponseCode.NOT_FOUND}
    return RocketMqRequest(RequestCode.QUERY_CONSUMER_OFFSET, doing, fields, accepted=accepted)


def offset_of(response: RocketMqResponse) -> int | None:
    """The committed offset in a response; None if there is none."""
    return response.number("offset") if response.code == ResponseCode.OK else None


def offsets(client: RocketMqClient, broker: str) -> dict[str, dict[LogId, int]]:
    """All committed offsets on one broker, by group."""
    response = client.ask(broker, RocketMqRequest(RequestCode.ALL_CONSUMER_OFFSETS, "list committed offsets", {}))
    by_group: dict[str, dict[LogId, int]] = {}
    try:
        for key, queues in response.parsed()["offsetTable"].items():
            topic, _, group = key.partition("@")
            places = {LogId(topic, int(number), broker): int(at) for number, at in queues.items()}
            by_group.setdefault(group, {}).update(places)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadBytes(response.where, 0, "offsets", f"{type(error).__name__}: {error}", "check its version") from error
    return by_group


def commit(client: RocketMqClient, group: str, log: LogId, at: int) -> None:
    """Commit an offset. The group must exist (`NoGroup`). Its members, if any, overwrite it: see `members`."""
    doing = f"commit offset {at} of group {group} in {log}"
    fields = {**_place(group, log), "commitOffset": at}
    client.ask(log.place, RocketMqRequest(RequestCode.UPDATE_CONSUMER_OFFSET, doing, fields, changes=True))


def members(client: RocketMqClient, group: str, brokers: Iterable[str]) -> set[str]:
    """The client ids of the members that are connected to any of these brokers. A broker that refuses to list them is
    an error, unless another one has members."""
    ids, refused = set[str](), list[Stop]()
    accepted = {ResponseCode.OK, ResponseCode.NO_MEMBER}
    for broker in brokers:
        request = RocketMqRequest(
            RequestCode.MEMBERS, f"list the members of group {group}", {"consumerGroup": group}, accepted=accepted
        )
        try:
            response = client.ask(broker, request)
            ids |= _ids(response) if response.code == ResponseCode.OK else set()
        except BadBytes as error:
            where = f"a response of broker {broker} to list the members of group {group}"
            refused.append(BadBytes(where, error.at, error.wanted, error.found, error.todo))
        except Stop as error:
            refused.append(Stop(f"broker {broker} to list the members of group {group}", error.found, error.todo))
    if refused and not ids:
        raise refused[0]
    return ids


def _place(group: str, log: LogId) -> Mapping[str, object]:
    return {"consumerGroup": group, "topic": log.topic, "queueId": log.number}


def _ids(response: RocketMqResponse) -> set[str]:
    try:
        return {str(member["clientId"]) for member in response.parsed()["connectionSet"]}
    except (KeyError, TypeError) as error:
        raise BadBytes(response.where, 0, "members", f"{type(error).__name__}: {error}", "check its version") from error
