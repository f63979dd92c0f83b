"""Which discovered URLs are in scope."""

from __future__ import annotations

import pytest

from krowlspider.urls.canonical import host_of
from krowlspider.urls.scope import Scope, ScopeRules


def refusal(
    url: str,
    *,
    depth: int = 1,
    via: str | None = "example.com",
    max_depth: int | None = None,
    allow: tuple[str, ...] = (),
    deny: tuple[str, ...] = (),
    same_host: bool = False,
    same_domain: bool = False,
    max_url_length: int = 100,
) -> str | None:
    rules = ScopeRules(
        max_depth=max_depth, allow=allow, deny=deny, same_host=same_host, same_domain=same_domain
    )
    scope = Scope(rules, max_url_length=max_url_length)
    return scope.refusal(url, host_of(url), depth, via)


def test_without_rules_every_link_is_in_scope() -> None:
    assert refusal("https://other.example/", depth=1_000_000) is None


def test_a_link_deeper_than_the_limit_is_refused() -> None:
    assert refusal("https://example.com/", depth=2, max_depth=2) is None
    assert refusal("https://example.com/", depth=3, max_depth=2) == "depth"


def test_depth_of_0_admits_only_seeds() -> None:
    assert refusal("https://example.com/", depth=0, via=None, max_depth=0) is None
    assert refusal("https://example.com/", depth=1, max_depth=0) == "depth"


def test_a_longer_url_than_the_limit_is_refused_a_seed_too() -> None:
    url = "https://example.com/".ljust(100, "x")
    assert refusal(url) is None
    assert refusal(url + "x") == "length"
    assert refusal(url + "x", depth=0, via=None) == "length"
    assert refusal(url + "x", max_url_length=0) is None


@pytest.mark.parametrize("via", ["example.com", None])
def test_a_port_of_another_protocol_is_refused_a_seed_too(via: str | None) -> None:
    for port in (0, 22, 25, 6667, 10080):
        assert refusal(f"https://example.com:{port}/", via=via, depth=0) == "port"
        assert refusal(f"https://[::1]:{port}/", via=via, depth=0) == "port"
    for host in ("example.com", "example.com:8080", "[::1]", "[::25]", "[::1]:8080"):
        assert refusal(f"https://{host}/", via=via, depth=0) is None


def test_same_host_keeps_links_on_the_host_of_their_page() -> None:
    assert refusal("http://example.com/", same_host=True) is None
    assert refusal("https://www.example.com/", same_host=True) == "host"
    assert refusal("https://example.com:8080/", same_host=True) == "host"


def test_same_domain_keeps_links_on_the_domain_of_their_page() -> None:
    assert refusal("https://www.example.com:8080/", same_domain=True) is None
    assert refusal("https://example.org/", same_domain=True) == "domain"
    assert refusal("https://b.github.io/", via="a.github.io", same_domain=True) == "domain"


def test_deny_refuses_where_it_is_found_and_goes_before_allow() -> None:
    assert refusal("https://example.com/login", deny=("/log(in|out)",)) == "deny"
    assert refusal("https://example.com/", deny=("/log(in|out)",)) is None
    assert refusal("https://example.com/a/login", allow=("/a/",), deny=("x", "/login")) == "deny"


def test_with_allow_one_of_its_expressions_must_be_found() -> None:
    assert refusal("https://example.com/a/1", allow=("/a/", "/b/")) is None
    assert refusal("https://example.com/b/1", allow=("/a/", "/b/")) is None
    assert refusal("https://example.com/c/1", allow=("/a/", "/b/")) == "allow"


def test_a_seed_is_in_scope_whatever_the_rules_for_links() -> None:
    rules = {"same_host": True, "same_domain": True}
    url = "https://example.com/login"
    assert refusal(url, depth=0, via=None, allow=("x",), deny=("login",), **rules) is None
    assert refusal(url, via="other.example", allow=("x",), deny=("login",), **rules) == "host"


@pytest.mark.parametrize("rule", ["allow", "deny"])
def test_an_expression_that_does_not_compile_is_named(rule: str) -> None:
    with pytest.raises(ValueError, match=r"bro\(ken"):
        ScopeRules(**{rule: ("fine", "bro(ken")})
