//! Authorities that refuse: orders, names, accounts.

use anyhow::Result;

use crate::AUTO;
use crate::kit::{Options, Pebble, connect, says};

#[test]
fn validations_that_fail_are_tried_again_later_or_after_a_reload() -> Result<()> {
    let Some(pebble) = Pebble::start(Options::default())? else {
        return Ok(());
    };
    // NXDOMAIN.
    pebble.names().fail("a.example", 3);
    let proxy = pebble.proxy(AUTO).value("MORE", "").start()?;
    let why = "no certificate for a.example: \"a.example\" could not be validated by http-01 (";
    says(&proxy, why, 1)?;
    says(&proxy, "; the next try is at ", 1)?;
    let config = pebble.client()?;
    assert!(connect(&config, pebble.tls_port(), "a.example").is_err());
    says(&proxy, "as yet: \"a.example\" could not be validated", 1)?;
    assert_eq!(pebble.orders(), 1);
    pebble.names().addresses("a.example", &["127.0.0.1"]);
    proxy.reload()?;
    says(&proxy, "the certificate for a.example was issued", 1)?;
    connect(&config, pebble.tls_port(), "a.example")?;
    assert_eq!(pebble.orders(), 2);
    Ok(())
}

#[test]
fn names_that_an_authority_will_not_have_are_not_tried_again() -> Result<()> {
    let Some(pebble) = Pebble::start(Options::default())? else {
        return Ok(());
    };
    let conf = AUTO.replace("a.example", "www.blocked.example");
    let proxy = pebble.proxy(&conf).value("MORE", "").start()?;
    says(
        &proxy,
        "no certificate for www.blocked.example: rejectedIdentifier: ",
        1,
    )?;
    says(
        &proxy,
        "there is no other try before the configuration is read again",
        1,
    )?;
    Ok(())
}

#[test]
fn customers_prove_who_they_are() -> Result<()> {
    let options = Options {
        customers: true,
        ..Options::default()
    };
    let Some(pebble) = Pebble::start(options)? else {
        return Ok(());
    };
    let bad = "external_account_key kid-1 data:AAAA;";
    for (line, expected) in [
        (
            "",
            "the account cannot be had: the authority takes accounts of its customers alone",
        ),
        (bad, "the account cannot be had: "),
        (
            "external_account_key kid-1 customer.key;",
            "the certificate for a.example was issued",
        ),
        (
            "external_account_key kid-1 data:%%CUSTOMER_KEY%%;",
            "the certificate for a.example was issued",
        ),
    ] {
        let conf = AUTO.replace("%%MORE%%", line);
        let proxy = pebble
            .proxy(&conf)
            .file("customer.key", format!("{}\n", crate::kit::CUSTOMER_KEY))
            .start()?;
        says(&proxy, expected, 1)?;
    }
    Ok(())
}

#[test]
fn accounts_whose_keys_are_refused_say_so() -> Result<()> {
    let Some(pebble) = Pebble::start(Options::default())? else {
        return Ok(());
    };
    // A name that pebble takes for none.
    let proxy = pebble
        .proxy(AUTO)
        .value("MORE", "contact gopher:nobody;")
        .start()?;
    says(&proxy, "the account cannot be had: unsupportedContact", 1)?;
    says(&proxy, "there is no other try before", 1)?;
    assert_eq!(pebble.orders(), 0);
    Ok(())
}

#[test]
fn kinds_of_keys_sign_for_accounts() -> Result<()> {
    let Some(pebble) = Pebble::start(Options::default())? else {
        return Ok(());
    };
    for kind in ["ecdsa:384", "ecdsa:521", "rsa:2048"] {
        let line = format!("account_key {kind}; common_name_in_csr on;");
        let proxy = pebble.proxy(AUTO).value("MORE", &line).start()?;
        says(&proxy, "the certificate for a.example was issued", 1)?;
    }
    Ok(())
}
