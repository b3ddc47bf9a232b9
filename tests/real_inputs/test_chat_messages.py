"""Chat services take fewer characters than a message may have: what is sent ends with a whole line."""

import re

import apprise
import pytest

from workers.alerts.delivery.apprise_process import EgressGuard, _GuardedAttempt
from workers.alerts.delivery.message_text import CUT, keep_whole_lines

# Of the library, which brings a module that Python 3.13 has no more.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")
LINES = [
    line
    for number in range(1_000, 1_060)
    for line in (f"Node n{number} is lost & gone (critical)", f"https://weir.example/alerts/{number}/", "")
]
ADDRESSES = {
    "discord": f"discord://{'1' * 18}/{'a' * 68}",
    "telegram": "tgram://123456789:abcdefghijklmnopqrstuvwxyz0123456789/4711",
    "slack": "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#general",
    "mattermost": "mmost://localhost/3ccdd113474722377935511fc85d3dd4",
}


@pytest.mark.parametrize("address", ADDRESSES.values(), ids=ADDRESSES)
def test_a_message_of_many_alerts_holds_no_half_of_a_link(address, monkeypatch):
    service = apprise.Apprise.instantiate(address)
    sent = []
    monkeypatch.setattr(service, "send", lambda body, title="", **more: sent.append(body) or True)
    monkeypatch.setattr("sys.addaudithook", lambda hook: None)
    order = {"address": address, "kind": "failure", "title": "[critical] Many", "body": "\n".join(LINES)}
    assert _GuardedAttempt(order, EgressGuard("")).describe_failure(service) == ""
    [body] = sent
    links = re.findall(r"/alerts/[^\s<]*", body)
    assert len(body) <= service.body_maxlen
    assert len(links) > 10
    assert all(re.fullmatch(r"/alerts/1\d{3}/", each) for each in links)
    assert (CUT in body) == (len(links) < 60)


@pytest.mark.parametrize("most", range(0, 200, 7))
def test_what_is_kept_of_a_text_is_whole_lines_and_fits(most):
    kept = keep_whole_lines("\n".join(LINES), most)
    assert len(kept) <= most
    if CUT in kept:
        assert kept.removesuffix(f"\n{CUT}").split("\n") == LINES[: kept.count("\n")]
