"""The control service of a crawl of several processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
import pytest

from krowlspider.job.monitoring.access import CONTROL_TOKEN
from krowlspider.rpc.client import connect, results
from tests.mockweb import MockWeb
from tests.node.test_node import GRAPH, node_crawl
from tests.rpc.test_crawl import address_of, children_of

pb = pytest.importorskip("krowlspider.rpc.generated.krowl_pb2")

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_the_supervisor_answers_for_all_processes(tmp_path: Path) -> None:
    with MockWeb(graph=GRAPH) as web:
        # On a busy machine, gRPC has its turn late: the crawl must not end before.
        more = {"PROMETHEUS_PORT": 0, "KROWL_GRPC": "127.0.0.1:0", "KROWL_DELAY_MIN": 3}
        crawl = node_crawl(web, tmp_path, 2, **more).start()
        address = address_of(crawl)
        assert len(children_of(crawl.process.pid)) == 1
        assert not any(children_of(int(each)) for each in crawl.children)
        token = (crawl.jobdir / CONTROL_TOKEN).read_text().strip()
        with connect(address, token) as stub:
            got: set[str] = set()
            for message in results(stub, from_start=True):
                got |= {each.process for each in message.results}
                if got == {"p1", "p2"}:
                    break
            # A page is counted with the commit after its record was written.
            crawl.wait_until(lambda: stub.GetStatus(pb.GetStatusRequest()).done > 0)
            assert stub.GetStatus(pb.GetStatusRequest()).folder == str(crawl.jobdir)
            done = stub.SetCrawlerState(pb.SetCrawlerStateRequest(paused=True)).outcome
            assert done.message.startswith("paused at all nodes")
            stub.SetCrawlerState(pb.SetCrawlerStateRequest(paused=False))
            found = stub.SubmitUrls(pb.SubmitUrlsRequest(urls=[f"{web.seeds()[0]}by-grpc"]))
            assert found.new + found.sent == 1
            asked = pb.ExplainRequest(url=web.seeds()[0])
            assert stub.Explain(asked).state in {"fetched", "in flight", "queued"}
            assert stub.ListHosts(pb.ListHostsRequest()).hosts
            done = stub.BlockHost(pb.BlockHostRequest(name="c.test")).outcome
            assert done.done
        with connect(address, "wrong") as stub, pytest.raises(grpc.RpcError, match="token"):
            stub.GetStatus(pb.GetStatusRequest())
        refused = 'krowl_node_grpc_refused_total{reason="token"}'
        crawl.wait_until(lambda: crawl.metrics().get(refused) == 1)
        assert crawl.metrics()["krowl_node_grpc_calls_total"] > 7
        crawl.interrupt()
    assert "; refused: token 1" in crawl.log
    assert "Traceback" not in crawl.log
