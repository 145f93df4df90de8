//! The verdict that nginx gives: libssl's handshake with a callback that lets every error pass, and
//! the last error; and what the command line says.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use openssl::ssl::{
    Ssl, SslContext, SslContextBuilder, SslFiletype, SslMethod, SslVerifyMode, SslVersion,
};
use openssl::x509::store::{X509Lookup, X509StoreBuilder};
use openssl::x509::verify::X509VerifyFlags;
use tempfile::NamedTempFile;

use crate::kit::{Make, Party, bundle};

/// A chain, and the configuration that judges it.
#[derive(Clone, Copy)]
pub(crate) struct Question<'a> {
    pub(crate) authorities: &'a [u8],
    pub(crate) revocations: Option<&'a [u8]>,
    pub(crate) chain: &'a [&'a Party],
    pub(crate) depth: u32,
}

pub(crate) fn file(bytes: &[u8]) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file
}

/// `ssl_verify_client on` of nginx: the number of the last error.
pub(crate) fn last_error(question: Question<'_>) -> i32 {
    let (here, there) = UnixStream::pair().unwrap();
    let client = client(question.chain);
    let joined = std::thread::spawn(move || {
        let ssl = Ssl::new(&client).unwrap();
        // The end of the handshake is seen by the other side; what comes then does not matter.
        let _stream = ssl.connect(there);
    });
    let ssl = Ssl::new(&server(question)).unwrap();
    let stream = ssl.accept(here).unwrap();
    let result = stream.ssl().verify_result().as_raw();
    drop(stream);
    joined.join().unwrap();
    result
}

fn server(question: Question<'_>) -> SslContext {
    let own = Make::root("server").make();
    let mut context = SslContextBuilder::new(SslMethod::tls_server()).unwrap();
    context.set_certificate(&own.certificate).unwrap();
    context.set_private_key(&own.key).unwrap();
    let mut store = X509StoreBuilder::new().unwrap();
    if question.revocations.is_some() {
        store
            .set_flags(X509VerifyFlags::CRL_CHECK | X509VerifyFlags::CRL_CHECK_ALL)
            .unwrap();
    }
    let lookup = store.add_lookup(X509Lookup::file()).unwrap();
    lookup
        .load_cert_file(file(question.authorities).path(), SslFiletype::PEM)
        .unwrap();
    if let Some(revocations) = question.revocations {
        lookup
            .load_crl_file(file(revocations).path(), SslFiletype::PEM)
            .unwrap();
    }
    context.set_cert_store(store.build());
    context.set_verify_callback(SslVerifyMode::PEER, |_, _| true);
    context.set_verify_depth(question.depth);
    context.build()
}

fn client(chain: &[&Party]) -> SslContext {
    let mut context = SslContextBuilder::new(SslMethod::tls_client()).unwrap();
    context.set_verify(SslVerifyMode::NONE);
    context.set_security_level(0);
    context
        .set_max_proto_version(Some(SslVersion::TLS1_2))
        .unwrap();
    context.set_certificate(&chain[0].certificate).unwrap();
    context.set_private_key(&chain[0].key).unwrap();
    for issuer in &chain[1..] {
        context
            .add_extra_chain_cert(issuer.certificate.clone())
            .unwrap();
    }
    context.build()
}

fn path(file: &NamedTempFile) -> &str {
    file.path().to_str().unwrap()
}

/// Runs `openssl` and gives its output, or what it said about its failure.
pub(crate) fn openssl(arguments: &[&str], files: &[&Path]) -> Result<String, String> {
    let output = Command::new("openssl")
        .args(arguments)
        .args(files)
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    if output.status.success() {
        Ok(text(output.stdout))
    } else {
        Err(text(output.stderr) + &text(output.stdout))
    }
}

/// `openssl verify` for a client's chain: whether it is good, and what it says.
pub(crate) fn verify(question: Question<'_>) -> Result<String, String> {
    let (leaf, others) = question.chain.split_first().unwrap();
    let leaf = file(&leaf.pem());
    let untrusted = file(&bundle(others));
    let authorities = file(question.authorities);
    let revocations = file(question.revocations.unwrap_or_default());
    let depth = question.depth.to_string();
    let mut arguments = vec![
        "verify",
        "-purpose",
        "sslclient",
        "-no-CApath",
        "-no-CAstore",
    ];
    arguments.extend(["-CAfile", path(&authorities), "-verify_depth", &depth]);
    arguments.extend(["-auth_level", "2"]);
    if !others.is_empty() {
        arguments.extend(["-untrusted", path(&untrusted)]);
    }
    if question.revocations.is_some() {
        arguments.extend([
            "-crl_check",
            "-crl_check_all",
            "-CRLfile",
            path(&revocations),
        ]);
    }
    openssl(&arguments, &[leaf.path()])
}
