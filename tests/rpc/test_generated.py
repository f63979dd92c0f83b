"""The generated modules are those of the proto files."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from typing import TYPE_CHECKING

import pytest

from krowlspider.frontier.admin.view import HostRow
from krowlspider.job.explain import Explanation
from tests.support.crawling import ROOT

if TYPE_CHECKING:
    from pathlib import Path

GENERATED = ROOT / "krowlspider" / "rpc" / "generated"
PROTOS = sorted(each.relative_to(ROOT) for each in ROOT.glob("deploy/proto/*.proto"))


@pytest.mark.slow
def test_generated_modules_are_up_to_date(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools")
    options = [f"--{kind}_out={tmp_path}" for kind in ("python", "pyi", "grpc_python")]
    # In tests each warning is an error, and this one is of setuptools in grpc_tools.
    command = [sys.executable, "-W", "ignore", "-m", "grpc_tools.protoc"]
    command += ["-I", "krowlspider/rpc/generated=deploy/proto", *options]
    subprocess.run([*command, *map(str, PROTOS)], cwd=ROOT, check=True)
    made = sorted((tmp_path / "krowlspider" / "rpc" / "generated").iterdir())
    assert [
        each.name for each in made if each.read_text() != (GENERATED / each.name).read_text()
    ] == []
    assert len(made) == 3 * len(PROTOS)


def test_each_call_of_the_proto_is_served() -> None:
    pytest.importorskip("grpc")
    control = pytest.importorskip("krowlspider.rpc.control")
    service = control.pb.DESCRIPTOR.services_by_name["CrawlService"]
    names = {each.name for each in service.methods}
    assert names
    assert names <= vars(control.CrawlService).keys()


def test_a_message_has_the_fields_of_the_answer() -> None:
    pb = pytest.importorskip("krowlspider.rpc.generated.krowl_pb2")
    for message, kind in ((pb.ExplainResponse, Explanation), (pb.Host, HostRow)):
        known = [field.name for field in message.DESCRIPTOR.fields]
        assert sorted(known) == sorted(field.name for field in fields(kind))
