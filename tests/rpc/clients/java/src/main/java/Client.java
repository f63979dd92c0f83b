import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.MetadataUtils;
import java.util.Iterator;
import java.util.concurrent.TimeUnit;
import krowl.v1.CrawlServiceGrpc;
import krowl.v1.ExplainRequest;
import krowl.v1.GetStatusRequest;
import krowl.v1.StreamResultsRequest;
import krowl.v1.StreamResultsResponse;
import krowl.v1.SubmitUrlsRequest;

/** A client in Java, from generated code: it steers a crawl, and follows its results. */
public final class Client {
  public static void main(String[] given) {
    ManagedChannel channel =
        Grpc.newChannelBuilder(given[0], InsecureChannelCredentials.create()).build();
    try {
      run(CrawlServiceGrpc.newBlockingStub(channel), given[1], given[2]);
    } finally {
      channel.shutdownNow();
    }
  }

  private static void run(CrawlServiceGrpc.CrawlServiceBlockingStub open, String token, String url) {
    try {
      open.getStatus(GetStatusRequest.getDefaultInstance());
      throw new IllegalStateException("it answers without a token");
    } catch (StatusRuntimeException error) {
      check(error.getStatus().getCode() == Status.Code.UNAUTHENTICATED, error);
    }
    Metadata access = new Metadata();
    access.put(
        Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER), "Bearer " + token);
    var crawl =
        open.withInterceptors(MetadataUtils.newAttachHeadersInterceptor(access))
            .withDeadlineAfter(2, TimeUnit.MINUTES);
    var added = crawl.submitUrls(SubmitUrlsRequest.newBuilder().addUrls(url).setMaxDepth(0).build());
    check(added.getNew() == 1, added);
    Iterator<StreamResultsResponse> stream =
        crawl.streamResults(StreamResultsRequest.newBuilder().setFromStart(true).build());
    boolean found = false;
    while (!found) {
      found =
          stream.next().getResultsList().stream()
              .anyMatch(each -> each.getUrl().equals(url) && each.getStatus() == 200);
    }
    var explained = crawl.explain(ExplainRequest.newBuilder().setUrl(url).build());
    check(explained.getCaptures() >= 1, explained);
    var figures = crawl.getStatus(GetStatusRequest.getDefaultInstance());
    check(figures.getDone() >= 1, figures);
    System.out.println("Java: " + figures.getDone() + " pages done");
  }

  private static void check(boolean isSo, Object found) {
    if (!isSo) {
      throw new IllegalStateException(String.valueOf(found));
    }
  }
}
