// rpc is both ends of gRPC in Go: `rpc server [CERT KEY]` prints its port and serves until its input
// ends; `rpc client ADDRESS [CA]` does what tests/tests/grpc says that each client does, and prints
// a line for each answer.
package main

import (
	"fmt"
	"io"
	"os"

	"google.golang.org/protobuf/types/known/wrapperspb"
)

// text is the message of all calls.
type text = wrapperspb.StringValue

const service = "millpond.Echo"

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	switch os.Args[1] {
	case "server":
		go serve(os.Args[2:])
		_, err := io.Copy(io.Discard, os.Stdin)
		check(err)
	case "client":
		newCaller(os.Args[2:]).run()
	default:
		check(fmt.Errorf("neither server nor client: %s", os.Args[1]))
	}
}
