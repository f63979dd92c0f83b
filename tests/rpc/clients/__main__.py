"""Generate clients in Go and Java from deploy/proto, and run them with a crawl:
``python -m tests.rpc.clients``.

It needs Go 1.24, a JDK 17 and Maven, which fetch some 100 MB of packages.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from krowlspider.job.monitoring.access import CONTROL_TOKEN
from tests.extensions.test_live_page import SPEC
from tests.mockweb import MockWeb
from tests.rpc.test_crawl import address_of, make_crawl
from tests.support.crawling import ROOT

_HERE = Path(__file__).parent
_PROTO = ROOT / "deploy" / "proto"
_PLUGINS = (
    "google.golang.org/protobuf/cmd/protoc-gen-go",
    "google.golang.org/grpc/cmd/protoc-gen-go-grpc",
)


def build_go(folder: Path) -> None:
    subprocess.run(["go", "build", "-o", "bin/", *_PLUGINS], cwd=folder, check=True)
    plugins = [f"--plugin=bin/{each.rpartition('/')[2]}" for each in _PLUGINS]
    out = ("--go_out=.", "--go-grpc_out=.", "krowl.proto")
    words = [sys.executable, "-m", "grpc_tools.protoc", "-I", _PROTO, *plugins, *out]
    subprocess.run(words, cwd=folder, check=True)
    subprocess.run(["go", "build", "-o", "bin/client", "."], cwd=folder, check=True)


def run_go(folder: Path, *given: str) -> None:
    subprocess.run(["bin/client", *given], cwd=folder, check=True)


def build_java(folder: Path) -> None:
    subprocess.run(["mvn", "-B", "-q", f"-Dprotos={_PROTO}", "compile"], cwd=folder, check=True)


def run_java(folder: Path, *given: str) -> None:
    words = ["mvn", "-B", "-q", "exec:java", f"-Dexec.args={' '.join(given)}"]
    subprocess.run(words, cwd=folder, check=True)


def main() -> None:
    with TemporaryDirectory() as name:
        folders = {each: Path(name) / each for each in ("go", "java")}
        for language, folder in folders.items():
            shutil.copytree(_HERE / language, folder)
        build_go(folders["go"])
        build_java(folders["java"])
        with MockWeb(spec=SPEC) as web:
            crawl = make_crawl(Path(name), web, KROWL_DELAY_MIN=5).start()
            try:
                address = address_of(crawl)
                token = (crawl.jobdir / CONTROL_TOKEN).read_text().strip()
                run_go(folders["go"], address, token, web.url("go.test", "/0"))
                run_java(folders["java"], address, token, web.url("java.test", "/0"))
            finally:
                crawl.interrupt()


if __name__ == "__main__":
    main()
