import java.io.FileInputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublisher;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.security.KeyStore;
import java.security.MessageDigest;
import java.security.cert.CertificateFactory;
import java.util.HexFormat;
import java.util.stream.IntStream;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/**
 * A client of HTTPS in Java: `java Client.java URL CA VERSION`, where VERSION is h1 or h2. It does
 * what tests/tests/real_clients says that each client does, and prints a line for each answer.
 */
class Client {
    static final int UPLOAD_LEN = 300_000;
    static final int PARALLEL = 20;

    final String base;
    final SSLContext context;
    final HttpClient.Version version;
    final HttpClient client;

    Client(String base, String authority, String version) throws Exception {
        this.base = base;
        this.version = version.equals("h2") ? HttpClient.Version.HTTP_2 : HttpClient.Version.HTTP_1_1;
        var store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        try (var file = new FileInputStream(authority)) {
            var factory = CertificateFactory.getInstance("X.509");
            store.setCertificateEntry("ca", factory.generateCertificate(file));
        }
        var trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(store);
        context = SSLContext.getInstance("TLS");
        context.init(null, trust.getTrustManagers(), null);
        client = connect();
    }

    /** A client with connections of its own, whose sessions are those of the context. */
    HttpClient connect() {
        return HttpClient.newBuilder().sslContext(context).version(version).build();
    }

    HttpRequest request(String method, String path, BodyPublisher body) {
        return HttpRequest.newBuilder(URI.create(base + path)).method(method, body).build();
    }

    void tell(String task, HttpResponse<byte[]> response) {
        try {
            var digest = MessageDigest.getInstance("SHA-256").digest(response.body());
            var spoken = response.version() == HttpClient.Version.HTTP_2 ? "h2" : "h1";
            var sum = HexFormat.of().formatHex(digest);
            System.out.printf("%s %d %s %s%n", task, response.statusCode(), spoken, sum);
        } catch (java.security.NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
    }

    void ask(String task, String method, String path, BodyPublisher body) throws Exception {
        tell(task, client.send(request(method, path, body), BodyHandlers.ofByteArray()));
    }

    void run() throws Exception {
        var none = BodyPublishers.noBody();
        var upload = new byte[UPLOAD_LEN];
        for (int index = 0; index < upload.length; index++) {
            upload[index] = (byte) (index * 7 % 251);
        }
        ask("small", "GET", "/small", none);
        ask("large", "GET", "/large", none);
        ask("chunks", "GET", "/chunks", none);
        ask("upload", "POST", "/echo", BodyPublishers.ofByteArray(upload));
        ask("head", "HEAD", "/large", none);
        ask("missing", "GET", "/missing", none);
        var large = request("GET", "/large", none);
        var many = IntStream.range(0, PARALLEL)
            .mapToObj(index -> client.sendAsync(large, BodyHandlers.ofByteArray()))
            .toList();
        for (var answer : many) {
            tell("many", answer.get());
        }
        var again = connect().send(request("GET", "/small", none), BodyHandlers.ofByteArray());
        System.out.println("again " + again.headers().firstValue("X-Reused").orElse("?"));
    }

    public static void main(String[] args) throws Exception {
        new Client(args[0], args[1], args[2]).run();
        // Threads of the clients may still wait.
        System.exit(0);
    }
}
