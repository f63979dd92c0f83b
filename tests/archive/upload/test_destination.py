from __future__ import annotations

import pytest

from krowlspider.archive.uploads import Destination, is_endpoint
from tests.support.tables import table


@pytest.mark.parametrize(
    ("url", "objects"),
    [
        ("s3://bucket", "s3://bucket/X"),
        ("s3://bucket/", "s3://bucket/X"),
        ("s3://my.bucket-1/pre/fix", "s3://my.bucket-1/pre/fix/X"),
        ("s3://bucket/year=2026/a.b_c+d/", "s3://bucket/year=2026/a.b_c+d/X"),
    ],
)
def test_file_becomes_the_object_of_its_name_under_the_prefix(url: str, objects: str) -> None:
    assert Destination.parse(url).url("X") == objects
    assert Destination.parse(url) == Destination.parse(Destination.parse(url).url())


@table(
    "url",
    [
        *("", "bucket", "s3:/bucket", "s3://", "s3:///prefix", "S3://bucket", "https://bucket"),
        *("s3://b", "s3://-bucket", "s3://buc ket", "s3://key:secret@bucket", f"s3://{'b' * 64}"),
        *("s3://bucket//", "s3://bucket/a//b", "s3://bucket/../b", "s3://bucket/./b"),
        *("s3://bucket/ä", "s3://bucket/a b", "s3://bucket/a?b", "s3://bucket/a\nb"),
    ],
)
def test_url_of_no_place_in_a_bucket_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"is not s3://bucket|has a prefix that"):
        Destination.parse(url)


def test_endpoint_is_an_http_url_without_secrets() -> None:
    for right in ("http://127.0.0.1:9000", "https://id.r2.cloudflarestorage.com", "http://[::1]:1"):
        assert is_endpoint(right)
    wrong = (
        "",
        "host:9000",
        "ftp://host",
        "http://",
        "http://[::1",
        "http://host:99999",
        "http://",
    )
    secret = ("http://key:secret@host", "http://key@host", "http://host?key=secret", "http://a b")
    assert not any(map(is_endpoint, wrong + secret))
