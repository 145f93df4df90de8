// quic is a client of HTTP/3 by quic-go: `quic PORT CA DIGEST`, where DIGEST is the SHA-256 of
// /large. It does what tests/tests/http3/clients.rs says, and prints a line for each deed.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

const (
	small, parallel = 300, 20
	large, part     = 3_000_000, 100_000
	uploadLen       = 300_000
)

var base string

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// dialled is the connection that a transport made last.
type dialled struct {
	connection *quic.Conn
}

func transport(roots *x509.CertPool, cache tls.ClientSessionCache) (*http3.Transport, *dialled) {
	made := &dialled{}
	return &http3.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "localhost", ClientSessionCache: cache},
		Dial: func(ctx context.Context, address string, config *tls.Config, quicConfig *quic.Config) (*quic.Conn, error) {
			connection, err := quic.DialAddrEarly(ctx, address, config, quicConfig)
			made.connection = connection
			return connection, err
		},
	}, made
}

func ask(transport *http3.Transport, method, path, bytesRange string, body []byte) (int, []byte) {
	request, err := http.NewRequest(method, base+path, bytes.NewReader(body))
	check(err)
	if bytesRange != "" {
		request.Header.Set("Range", bytesRange)
	}
	response, err := transport.RoundTrip(request)
	check(err)
	defer response.Body.Close()
	all, err := io.ReadAll(response.Body)
	check(err)
	return response.StatusCode, all
}

// together runs a deed so many times, PARALLEL at once.
func together(count int, deed func(int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range parallel {
		all.Go(func() {
			for index := int(next.Add(1)) - 1; index < count; index = int(next.Add(1)) - 1 {
				deed(index)
			}
		})
	}
	all.Wait()
}

func main() {
	base = "https://127.0.0.1:" + os.Args[1]
	ca, err := os.ReadFile(os.Args[2])
	check(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	cache := tls.NewLRUClientSessionCache(8)
	one, made := transport(roots, cache)

	var right atomic.Int64
	together(small, func(int) {
		if status, body := ask(one, "GET", "/small", "", nil); status == 200 && string(body) == "small" {
			right.Add(1)
		}
	})
	fmt.Println("small", right.Load())

	whole := make([]byte, large)
	together(large/part, func(index int) {
		first := index * part
		_, body := ask(one, "GET", "/large", fmt.Sprintf("bytes=%d-%d", first, first+part-1), nil)
		copy(whole[first:], body)
	})
	fmt.Println("ranges", fmt.Sprintf("%x", sha256.Sum256(whole)) == os.Args[3])

	upload := make([]byte, uploadLen)
	for index := range upload {
		upload[index] = byte(index * 7 % 251)
	}
	status, body := ask(one, "POST", "/echo", "", upload)
	fmt.Println("upload", status, bytes.Equal(body, upload))
	fmt.Println("first", made.connection.ConnectionState().Used0RTT)
	check(one.Close())

	again, made := transport(roots, cache)
	_, body = ask(again, http3.MethodGet0RTT, "/small", "", nil)
	state := made.connection.ConnectionState()
	fmt.Println("again", string(body), state.TLS.DidResume, state.Used0RTT)
	check(again.Close())
}
