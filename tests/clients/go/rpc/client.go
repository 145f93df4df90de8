package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	// patience is the time that a call may take on a busy machine.
	patience = 60 * time.Second
	// deadline is the time of the call that is never answered.
	deadline = 300 * time.Millisecond
	rounds   = 50
	largeLen = 1_000_000
)

type caller struct {
	connection *grpc.ClientConn
}

func newCaller(args []string) caller {
	secure := insecure.NewCredentials()
	if len(args) == 2 {
		var err error
		secure, err = credentials.NewClientTLSFromFile(args[1], "")
		check(err)
	}
	connection, err := grpc.NewClient("dns:///"+args[0], grpc.WithTransportCredentials(secure))
	check(err)
	return caller{connection}
}

func withTime(time time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), time)
}

// call makes a unary call of a path.
func (c caller) call(time time.Duration, path, asked string, more ...grpc.CallOption) (string, error) {
	ctx, end := withTime(time)
	defer end()
	ctx = metadata.AppendToOutgoingContext(ctx, "x-text", "some text", "x-data-bin", "\x00\xff")
	answer := new(text)
	err := c.connection.Invoke(ctx, path, wrapperspb.String(asked), answer, more...)
	return answer.Value, err
}

func (c caller) run() {
	c.unary()
	c.streams()
	for code := 1; code <= 16; code++ {
		_, err := c.call(patience, "/"+service+"/Fail", fmt.Sprint(code))
		told := status.Convert(err)
		fmt.Printf("fail %d %s\n", told.Code(), told.Message())
	}
	for _, name := range []string{
		service + "/Nothing", "dead.Service/Call", "denied.Service/Call", "none.Service/Call",
		"limited.Service/Call",
	} {
		_, err := c.call(patience, "/"+name, "x")
		fmt.Printf("%s %d\n", name, status.Code(err))
	}
	before := c.cancelled()
	_, err := c.call(deadline, "/"+service+"/Hang", "x")
	fmt.Printf("deadline %d\n", status.Code(err))
	for c.cancelled() == before {
		time.Sleep(time.Millisecond)
	}
	fmt.Println("the server knows")
}

func (c caller) cancelled() string {
	count, err := c.call(patience, "/"+service+"/Cancelled", "")
	check(err)
	return count
}

func (c caller) unary() {
	var head, tail metadata.MD
	answer, err := c.call(patience, "/"+service+"/Unary", "hello", grpc.Header(&head), grpc.Trailer(&tail))
	check(err)
	fmt.Printf("unary %s %q %q %q\n", answer, head["x-text"][0], head["x-data-bin"][0], tail["x-tail"][0])
	large := strings.Repeat("x", largeLen)
	answer, err = c.call(patience, "/"+service+"/Unary", large)
	check(err)
	fmt.Println("large", answer == large)
}

func (c caller) stream(name string) (grpc.ClientStream, context.CancelFunc) {
	ctx, end := withTime(patience)
	both := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	stream, err := c.connection.NewStream(ctx, both, "/"+service+"/"+name)
	check(err)
	return stream, end
}

func receive(stream grpc.ClientStream) string {
	answer := new(text)
	check(stream.RecvMsg(answer))
	return answer.Value
}

func (c caller) streams() {
	var parts []string
	for round := range rounds {
		parts = append(parts, fmt.Sprint(round))
	}
	all := strings.Join(parts, " ")

	stream, end := c.stream("Down")
	defer end()
	check(stream.SendMsg(wrapperspb.String(all)))
	check(stream.CloseSend())
	var came []string
	for {
		answer := new(text)
		err := stream.RecvMsg(answer)
		if err == io.EOF {
			break
		}
		check(err)
		came = append(came, answer.Value)
	}
	fmt.Println("down", strings.Join(came, " ") == all)

	stream, end = c.stream("Up")
	defer end()
	for _, part := range parts {
		check(stream.SendMsg(wrapperspb.String(part)))
	}
	check(stream.CloseSend())
	fmt.Println("up", receive(stream) == all)

	// Each message is answered before the next is sent.
	stream, end = c.stream("Both")
	defer end()
	same := true
	for _, part := range parts {
		check(stream.SendMsg(wrapperspb.String(part)))
		same = same && receive(stream) == part
	}
	check(stream.CloseSend())
	same = same && stream.RecvMsg(new(text)) == io.EOF
	fmt.Println("both", same)
}
