"""Questions to every broker of a cluster. Each has its own users and data: one that is away, refuses the user or sends
a malformed response must not stop the others."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from trueup.state.common.errors import Retry, Stop

Answer = TypeVar("Answer")
Failure = Retry | Stop


def ask_each_broker(
    brokers: Iterable[str], ask: Callable[[str], Answer]
) -> tuple[dict[str, Answer], dict[str, Failure]]:
    """As `answers_of`. Raises `worst` of the errors if no broker answers."""
    answers, failed = answers_of(brokers, ask)
    if failed and not answers:
        raise worst(failed.values())
    return answers, failed


def answers_of(brokers: Iterable[str], ask: Callable[[str], Answer]) -> tuple[dict[str, Answer], dict[str, Failure]]:
    """The answers by broker, and the errors of the brokers without one."""
    answers, failed = dict[str, Answer](), dict[str, Failure]()
    for broker in brokers:
        try:
            answers[broker] = ask(broker)
        except (Retry, Stop) as error:
            failed[broker] = error
    return answers, failed


def worst(errors: Iterable[Failure]) -> Failure:
    """One of these errors, which are not empty: the first that an operator must act on, else the first one."""
    every = list(errors)
    return next((error for error in every if isinstance(error, Stop)), every[0])
