"""A frontier for crawlers of others: crawler-commons' URLFrontier service over our frontier.

docs/urlfrontier.md says how it is run, docs/decisions/urlfrontier.md why it is as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from krowlspider.errors import need

if TYPE_CHECKING:
    from krowlspider.rpc.grpc_server import GrpcServer
    from krowlspider.rpc.urlfrontier.crawls import Crawls
    from krowlspider.rpc.urlfrontier.service import FrontierService

_NAME = "urlfrontier.URLFrontier"


def add(server: GrpcServer, crawls: Crawls) -> FrontierService:
    """Add the service to a server that is not started, and return it. Start it after the server,
    and stop it when the server has stopped.

    :raises KrowlError: the extra grpc is not installed
    """
    need("google.protobuf", "grpc")
    module = need("krowlspider.rpc.urlfrontier.service", "grpc")
    service: FrontierService = module.FrontierService(crawls, server.counts)
    generated = need("krowlspider.rpc.generated.urlfrontier_pb2_grpc", "grpc")
    generated.add_URLFrontierServicer_to_server(service, server.aio)
    server.offer(_NAME)
    return service
