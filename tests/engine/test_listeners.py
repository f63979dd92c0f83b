"""A signal has listeners exactly when Scrapy would call one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pydispatch.dispatcher import Any as ANY
from scrapy.utils.test import get_crawler

from krowlspider.engine.logformatter import is_heard, send_where_heard

if TYPE_CHECKING:
    from scrapy.crawler import Crawler


class Listener:
    def __init__(self) -> None:
        self.heard = 0

    def hear(self) -> None:
        self.heard += 1


@pytest.fixture
def crawler() -> Crawler:
    return get_crawler()


SIGNAL = object()


def test_nobody_hears_a_signal_that_only_others_listen_to(crawler: Crawler) -> None:
    listener = Listener()
    crawler.signals.connect(listener.hear, object())
    get_crawler().signals.connect(listener.hear, SIGNAL)
    assert not is_heard(crawler, SIGNAL)
    crawler.signals.send_catch_log(SIGNAL)
    assert listener.heard == 0


@pytest.mark.parametrize("signal", [SIGNAL, ANY], ids=["this signal", "any signal"])
@pytest.mark.parametrize("anyone", [False, True], ids=["of this crawler", "of anyone"])
def test_a_listener_is_found_however_it_listens(
    crawler: Crawler, signal: object, *, anyone: bool
) -> None:
    listener = Listener()
    sender = {"sender": ANY} if anyone else {}
    crawler.signals.connect(listener.hear, signal, **sender)
    try:
        assert is_heard(crawler, SIGNAL)
        crawler.signals.send_catch_log(SIGNAL)
        assert listener.heard == 1
    finally:
        crawler.signals.disconnect(listener.hear, signal, **sender)
    assert not is_heard(crawler, SIGNAL)


def test_a_listener_that_is_gone_hears_nothing(crawler: Crawler) -> None:
    listener = Listener()
    crawler.signals.connect(listener.hear, SIGNAL)
    del listener
    assert not is_heard(crawler, SIGNAL)


@pytest.mark.parametrize("anyone", [False, True], ids=["of this crawler", "of anyone"])
def test_heard_signal_reaches_late_listeners(crawler: Crawler, *, anyone: bool) -> None:
    """Those who listen by the time at which it is sent."""
    send_where_heard(crawler)
    listener = Listener()
    assert crawler.signals.send_catch_log(SIGNAL) == []
    sender = {"sender": ANY} if anyone else {}
    crawler.signals.connect(listener.hear, SIGNAL, **sender)
    try:
        assert crawler.signals.send_catch_log(signal=SIGNAL) == [(listener.hear, None)]
    finally:
        crawler.signals.disconnect(listener.hear, SIGNAL, **sender)
    assert listener.heard == 1


def test_signal_of_another_sender_reaches_its_listeners(crawler: Crawler) -> None:
    send_where_heard(crawler)
    listener, other = Listener(), object()
    crawler.signals.connect(listener.hear, SIGNAL, sender=other)
    crawler.signals.send_catch_log(SIGNAL, sender=other)
    assert listener.heard == 1
