package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// cancelled counts calls of Hang whose client has left.
var cancelled atomic.Int64

func serve(files []string) {
	var options []grpc.ServerOption
	if len(files) == 2 {
		secure, err := credentials.NewServerTLSFromFile(files[0], files[1])
		check(err)
		options = append(options, grpc.Creds(secure))
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	server := grpc.NewServer(options...)
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: service,
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{
			method("Unary", unary), method("Fail", fail), method("Hang", hang),
			method("Cancelled", func(context.Context, string) (string, error) {
				return fmt.Sprint(cancelled.Load()), nil
			}),
		},
		Streams: []grpc.StreamDesc{
			{StreamName: "Down", Handler: down, ServerStreams: true},
			{StreamName: "Up", Handler: up, ClientStreams: true},
			{StreamName: "Both", Handler: both, ServerStreams: true, ClientStreams: true},
		},
	}, nil)
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	check(server.Serve(listener))
}

func method(name string, answer func(context.Context, string) (string, error)) grpc.MethodDesc {
	return grpc.MethodDesc{
		MethodName: name,
		Handler: func(_ any, ctx context.Context, read func(any) error,
			_ grpc.UnaryServerInterceptor) (any, error) {
			asked := new(text)
			if err := read(asked); err != nil {
				return nil, err
			}
			value, err := answer(ctx, asked.Value)
			return wrapperspb.String(value), err
		},
	}
}

// unary gives back what it is given, and the metadata in the head and behind the message.
func unary(ctx context.Context, asked string) (string, error) {
	came, _ := metadata.FromIncomingContext(ctx)
	told := metadata.MD{}
	for _, name := range []string{"x-text", "x-data-bin"} {
		told[name] = came[name]
	}
	if err := grpc.SetHeader(ctx, told); err != nil {
		return "", err
	}
	return asked, grpc.SetTrailer(ctx, metadata.Pairs("x-tail", "end"))
}

func fail(_ context.Context, asked string) (string, error) {
	var code codes.Code
	_, err := fmt.Sscan(asked, (*uint32)(&code))
	check(err)
	return "", status.Error(code, "über "+asked)
}

func hang(ctx context.Context, _ string) (string, error) {
	<-ctx.Done()
	cancelled.Add(1)
	return "", ctx.Err()
}

func down(_ any, stream grpc.ServerStream) error {
	asked := new(text)
	if err := stream.RecvMsg(asked); err != nil {
		return err
	}
	for _, part := range strings.Split(asked.Value, " ") {
		if err := stream.SendMsg(wrapperspb.String(part)); err != nil {
			return err
		}
	}
	return nil
}

func up(_ any, stream grpc.ServerStream) error {
	var parts []string
	for {
		asked := new(text)
		if err := stream.RecvMsg(asked); err == io.EOF {
			return stream.SendMsg(wrapperspb.String(strings.Join(parts, " ")))
		} else if err != nil {
			return err
		}
		parts = append(parts, asked.Value)
	}
}

func both(_ any, stream grpc.ServerStream) error {
	for {
		asked := new(text)
		if err := stream.RecvMsg(asked); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := stream.SendMsg(asked); err != nil {
			return err
		}
	}
}
