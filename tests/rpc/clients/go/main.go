// A client in Go, from generated code: it steers a crawl, and follows its results.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	krowl "client/krowl/v1"
)

func main() {
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		log.Fatal(err)
	}
}

func run(address, token, url string) error {
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	crawl := krowl.NewCrawlServiceClient(connection)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if _, err := crawl.GetStatus(ctx, &krowl.GetStatusRequest{}); status.Code(err) != codes.Unauthenticated {
		return fmt.Errorf("without a token: %w", err)
	}
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	depth := uint32(0)
	added, err := crawl.SubmitUrls(ctx, &krowl.SubmitUrlsRequest{Urls: []string{url}, MaxDepth: &depth})
	if err != nil || added.New != 1 {
		return fmt.Errorf("submitted: %v, %w", added, err)
	}
	stream, err := crawl.StreamResults(ctx, &krowl.StreamResultsRequest{FromStart: true})
	if err != nil {
		return err
	}
	for found := false; !found; {
		message, err := stream.Recv()
		if err != nil {
			return err
		}
		for _, result := range message.Results {
			found = found || (result.Url == url && result.Status == 200)
		}
	}
	explained, err := crawl.Explain(ctx, &krowl.ExplainRequest{Url: url})
	if err != nil || explained.Captures < 1 {
		return fmt.Errorf("explained: %v, %w", explained, err)
	}
	figures, err := crawl.GetStatus(ctx, &krowl.GetStatusRequest{})
	if err != nil || figures.Done < 1 {
		return fmt.Errorf("status: %v, %w", figures, err)
	}
	fmt.Printf("Go: %d pages done\n", figures.Done)
	return nil
}
