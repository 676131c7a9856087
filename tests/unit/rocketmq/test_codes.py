import pytest

from trueup.connectors.rocketmq.client.codes import Illegal, NoGroup, NoRoute, Unsupported, problem
from trueup.state.common.errors import Retry, Stop, TrueupError, Unknown


@pytest.mark.parametrize(
    ("code", "remark", "kind"),
    [
        (1, "java.lang.NullPointerException", Stop),
        (1, "[PC_SYNCHRONIZED]broker busy, start flow control for a while", Retry),
        (1, "java.util.NoSuchElementException, java.base/java.util.LinkedList.getLast(LinkedList.java:261)", Retry),
        (1, "in-sync replicas not enough", Retry),
        (1, "store getMessage return null", Retry),
        (1500, "please go away", Retry),
        (1, "UNKNOWN_ERROR", Unknown),
        (2, "[TIMEOUT_CLEAN_QUEUE]broker busy", Retry),
        (14, "", Retry),
        (215, "", Retry),
        (17, "", NoRoute),
        (26, "", NoGroup),
        (3, "", Unsupported),
        (13, "", Illegal),
        (1, "java.lang.RuntimeException: message body size exceeded", Illegal),
        (16, "", Stop),
        (29, "", Stop),
        (4711, "", Stop),
    ],
)
def test_an_error_is_passing_or_not(code: int, remark: str, kind: type[TrueupError]) -> None:
    assert type(problem(code, remark, "send", "b:1")) is kind


@pytest.mark.parametrize(
    ("remark", "todo"),
    [
        ("username cannot be null.", "set access_key and secret_key"),
        ("check signature failed.", "correct the secret key"),
        ("User:x is not found.", "create the user"),
        ("The subject of User:x is not exist.", "create the user"),
        ("User:x has no permission to access Topic:T from 127.0.0.1, no matched policies.", "grant this right"),
    ],
)
def test_each_denial_says_what_to_do(remark: str, todo: str) -> None:
    assert todo in problem(16, remark, "send", "b:1").todo


def test_an_error_names_server_action_and_first_line_of_the_remark() -> None:
    error = problem(29, "bad queue\n\tat java", "pull from t-b-9", "b:1")
    assert (error.expected, error.found) == ("b:1 to pull from t-b-9", "error 29 INVALID: bad queue")


_FRAME = ", org.apache.rocketmq.acl.plain.PlainPermissionManager.validate(PlainPermissionManager.java:683)\n\tat x"


@pytest.mark.parametrize(
    ("why", "todo"),
    [
        ("No accessKey is configured", "set access_key and secret_key"),
        ("No acl config for busy", "correct the access key"),
        ("Check signature failed for accessKey=link", "correct the secret key"),
        ("No default permission for group:CID_RMQ_SYS_TRUEUP", "grant this permission in plain_acl.yml"),
        ("Need admin permission for request code=17, but accessKey=link is not", "grant this permission"),
    ],
)
def test_a_refusal_of_acl_1_is_permanent_and_says_why(why: str, todo: str) -> None:
    """PlainPermissionManager.java of 4.9.7, which answers with the exception."""
    error = problem(1, f"org.apache.rocketmq.acl.common.AclException: {why}{_FRAME}", "list its topics", "b:1")
    assert (type(error), error.found, todo in error.todo) == (Stop, f"{why} (ACL 1.0)", True)
