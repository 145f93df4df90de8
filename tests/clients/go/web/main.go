// web is a client of HTTPS in Go: `web URL CA VERSION`, where VERSION is h1 or h2. It does what
// tests/tests/real_clients says that each client does, and prints a line for each answer.
package main

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
)

const uploadLen, parallel = 300_000, 20

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// client has connections of its own; those of one cache resume each other's sessions.
func client(ca []byte, version string, cache tls.ClientSessionCache) *http.Client {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		check(fmt.Errorf("no certificate in the file"))
	}
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots, ClientSessionCache: cache},
		ForceAttemptHTTP2: version == "h2",
	}
	if version == "h1" {
		transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	return &http.Client{Transport: transport}
}

func ask(client *http.Client, method, url string, body []byte) (*http.Response, []byte) {
	request, err := http.NewRequest(method, url, bytes.NewReader(body))
	check(err)
	response, err := client.Do(request)
	check(err)
	defer response.Body.Close()
	all, err := io.ReadAll(response.Body)
	check(err)
	return response, all
}

func version(response *http.Response) string {
	return fmt.Sprintf("h%d", response.ProtoMajor)
}

func main() {
	base := os.Args[1]
	ca, err := os.ReadFile(os.Args[2])
	check(err)
	cache := tls.NewLRUClientSessionCache(8)
	one := client(ca, os.Args[3], cache)
	tell := func(task, method, path string, body []byte) {
		response, all := ask(one, method, base+path, body)
		sum := sha256.Sum256(all)
		fmt.Printf("%s %d %s %x\n", task, response.StatusCode, version(response), sum)
	}
	upload := make([]byte, uploadLen)
	for index := range upload {
		upload[index] = byte(index * 7 % 251)
	}
	tell("small", "GET", "/small", nil)
	tell("large", "GET", "/large", nil)
	tell("chunks", "GET", "/chunks", nil)
	tell("upload", "POST", "/echo", upload)
	tell("head", "HEAD", "/large", nil)
	tell("missing", "GET", "/missing", nil)
	var all sync.WaitGroup
	for range parallel {
		all.Go(func() { tell("many", "GET", "/large", nil) })
	}
	all.Wait()
	response, _ := ask(client(ca, os.Args[3], cache), "GET", base+"/small", nil)
	fmt.Printf("again %s\n", response.Header.Get("X-Reused"))
}
