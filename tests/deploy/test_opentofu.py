"""The machines of a provider: names and paths in the files exist, and cloud-init is valid YAML.

No test asks a provider.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from krowlspider import settings
from tests.deploy.unit import SYSTEMD
from tests.support.crawling import ROOT

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = ROOT / "deploy" / "opentofu"
CODE = "\n".join(path.read_text() for path in sorted(FOLDER.glob("*.tf")))
TEMPLATES = sorted((FOLDER / "cloud-init").glob("*.yaml"))
_VARIABLE = re.compile(r"\$\{(?:jsonencode\()?(\w+)\)?\}")


def rendered(template: Path) -> dict[str, Any]:
    text = _VARIABLE.sub("1.2.3.4", template.read_text())
    assert text.startswith("#cloud-config\n")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def files(template: Path) -> dict[str, str]:
    """Return what the machine of a template has in the files that it writes, by path."""
    return {each["path"]: each["content"] for each in rendered(template)["write_files"]}


WORKER = files(FOLDER / "cloud-init" / "worker.yaml")


def test_each_name_in_the_code_is_declared_and_used() -> None:
    assert {*re.findall(r"\bvar\.(\w+)", CODE)} == {*re.findall(r'(?m)^variable "(\w+)"', CODE)}
    (block,) = re.findall(r"(?ms)^locals \{\n(.*?)^\}", CODE)
    assert {*re.findall(r"\blocal\.(\w+)", CODE)} == {*re.findall(r"(?m)^  (\w+) +=", block)}
    declared = {".".join(pair) for pair in re.findall(r'(?m)^resource "(\w+)" "(\w+)"', CODE)}
    used = {*re.findall(r"(?<!data\.)\b(openstack_\w+\.\w+)", CODE)}
    assert used <= declared


def test_another_number_of_workers_replaces_no_machine() -> None:
    """The control node is made with the addresses of the workers, and has Consul's data."""
    made = re.findall(r'(?ms)^resource "openstack_compute_instance_v2" .*?^}', CODE)
    assert len(made) == 2
    assert all("ignore_changes = [user_data]" in each for each in made)


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.stem)
def test_each_variable_of_a_template_is_given(template: Path) -> None:
    found = re.findall(rf'cloud-init/{template.name}", \{{\n(.*?)\n  \}}\)', CODE, re.DOTALL)
    given = re.findall(r"(?m)^    (\w+) +=", found[0])
    assert {*given} == {*_VARIABLE.findall(template.read_text())}
    assert rendered(template)["runcmd"]


def test_worker_installs_what_the_project_has() -> None:
    script = WORKER["/srv/krowl/install"]
    subprocess.run(["sh", "-n", "-c", script], check=True)
    paths = re.findall(r"project/(\S+)", script)
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert len(paths) == 4
    names = re.findall(r"(?m)^([A-Z_]+)=", WORKER["/srv/krowl/crawl.conf"])
    names += re.findall(r"-s (\w+)=", WORKER["/srv/krowl/crawl.conf"])
    assert {name for name in names if not hasattr(settings, name)} == {"ARGUMENTS"}


def test_worker_without_a_token_has_only_the_secret_of_redis(tmp_path: Path) -> None:
    (edit,) = re.findall(r"sed -i (\S+)", WORKER["/srv/krowl/install"])
    shutil.copy(SYSTEMD / "cluster.conf", tmp_path / "edited")
    subprocess.run(["sed", "-i", edit, tmp_path / "edited"], check=True)
    text = (tmp_path / "edited").read_text()
    assert re.findall(r"(?m)^LoadCredential=(\S+)", text) == [
        "redis-url:/srv/krowl/secrets/redis-url"
    ]
    assert "KROWL_CONSUL_TOKEN" not in text
