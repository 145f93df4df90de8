//! Reasons for which connections fail, in the words of OpenSSL, as nginx logs them.
//!
//! The text follows "SSL_do_handshake() failed": `(SSL: error:0A0000C1:SSL routines::no shared
//! cipher)`. The number is OpenSSL's: 0x0A000000 (its library of TLS) and the reason. A reason from
//! 1000 on is an alert that the peer sent.
//!
//! 1. [`Error::fault`] says how loud to be: nginx logs what a client did wrong at `info` and the
//!    rest at `crit` (`ngx_ssl_connection_error`).
//!
//! Reasons that rustls does not tell apart share one of OpenSSL's.

use std::fmt;

use rustls::{AlertDescription, InvalidMessage, PeerIncompatible, PeerMisbehaved};

/// OpenSSL's number of its library of TLS.
const LIBRARY: u32 = 0x0A00_0000;

/// The reason of the first alert: what the peer sent is added to it.
const ALERT_REASONS: u32 = 1000;

/// The reason for which a connection failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    reason: u32,
    text: &'static str,
    detail: Detail,
    fault: Fault,
}

/// The side that made the mistake, and so the level at which it is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The peer's: nginx logs it at `info` for clients and at `err` for upstreams.
    Peer,
    /// Ours, or unknown: nginx logs it at `crit`.
    Ours,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Detail {
    Nothing,
    Alert(u8),
    Text(Box<str>),
}

impl Error {
    pub(crate) const fn peer(reason: u32, text: &'static str) -> Self {
        Self {
            reason,
            text,
            detail: Detail::Nothing,
            fault: Fault::Peer,
        }
    }

    /// An error of ours, with what is known of it.
    pub(crate) fn ours(text: impl Into<Box<str>>) -> Self {
        Self {
            reason: 68,
            text: "internal error",
            detail: Detail::Text(text.into()),
            fault: Fault::Ours,
        }
    }

    fn with(self, detail: impl Into<Box<str>>) -> Self {
        Self {
            detail: Detail::Text(detail.into()),
            ..self
        }
    }

    fn alert(alert: AlertDescription) -> Self {
        let number = u8::from(alert);
        Self {
            reason: ALERT_REASONS + u32::from(number),
            text: alert_text(alert),
            detail: Detail::Alert(number),
            fault: Fault::Peer,
        }
    }

    /// The side that made the mistake.
    pub fn fault(&self) -> Fault {
        self.fault
    }

    /// The reason alone, in OpenSSL's words.
    pub fn reason(&self) -> &'static str {
        self.text
    }

    /// The number of the alert that the peer sent, if that was it.
    pub fn alert_received(&self) -> Option<u8> {
        match self.detail {
            Detail::Alert(number) => Some(number),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = LIBRARY | self.reason;
        write!(f, "(SSL: error:{code:08X}:SSL routines::{}", self.text)?;
        match &self.detail {
            Detail::Nothing => {}
            Detail::Alert(number) => write!(f, ":SSL alert number {number}")?,
            Detail::Text(text) => write!(f, ":{text}")?,
        }
        f.write_str(")")
    }
}

impl std::error::Error for Error {}

impl From<rustls::Error> for Error {
    fn from(error: rustls::Error) -> Self {
        use rustls::Error as Tls;
        match error {
            Tls::AlertReceived(alert) => Error::alert(alert),
            Tls::InvalidMessage(message) => of_message(&message),
            Tls::PeerIncompatible(why) => of_peer(&why),
            Tls::PeerMisbehaved(why) => of_misbehaviour(&why),
            Tls::InappropriateMessage { .. } | Tls::InappropriateHandshakeMessage { .. } => {
                Error::peer(244, "unexpected message")
            }
            Tls::DecryptError => Error::peer(281, "decryption failed or bad record mac"),
            Tls::PeerSentOversizedRecord => Error::peer(150, "encrypted length too long"),
            Tls::NoApplicationProtocol => Error::peer(235, "no application protocol"),
            Tls::NoCertificatesPresented => Error::peer(199, "peer did not return a certificate"),
            Tls::InvalidCertificate(why) => Error {
                fault: Fault::Ours,
                ..Error::peer(134, "certificate verify failed").with(why.to_string())
            },
            other => Error::ours(other.to_string()),
        }
    }
}

fn of_message(message: &InvalidMessage) -> Error {
    match message {
        InvalidMessage::InvalidContentType => Error::peer(443, "bad record type"),
        InvalidMessage::UnknownProtocolVersion => Error::peer(267, "wrong version number"),
        InvalidMessage::MessageTooLarge => Error::peer(198, "packet length too long"),
        InvalidMessage::HandshakePayloadTooLarge | InvalidMessage::CertificatePayloadTooLarge => {
            Error::peer(152, "excessive message size")
        }
        InvalidMessage::UnexpectedMessage(_) => Error::peer(244, "unexpected message"),
        InvalidMessage::InvalidKeyUpdate => Error::peer(122, "bad key update"),
        InvalidMessage::InvalidCcs => Error::peer(103, "bad change cipher spec"),
        InvalidMessage::InvalidServerName | InvalidMessage::DuplicateExtension(_) => {
            Error::peer(110, "bad extension")
        }
        InvalidMessage::NoSignatureSchemes => Error::peer(112, "missing sigalgs extension"),
        _ => Error::peer(159, "length mismatch"),
    }
}

fn of_peer(why: &PeerIncompatible) -> Error {
    use PeerIncompatible as Why;
    match why {
        Why::NoCipherSuitesInCommon => Error::peer(193, "no shared cipher"),
        Why::NoKxGroupsInCommon | Why::NamedGroupsExtensionRequired => {
            Error::peer(101, "no suitable key share")
        }
        Why::KeyShareExtensionRequired => Error::peer(101, "no suitable key share"),
        Why::NoSignatureSchemesInCommon | Why::NoCertificateRequestSignatureSchemesInCommon => {
            Error::peer(118, "no suitable signature algorithm")
        }
        Why::SignatureAlgorithmsExtensionRequired => Error::peer(112, "missing sigalgs extension"),
        Why::NullCompressionRequired => Error::peer(187, "no compression specified"),
        Why::ServerDoesNotSupportTls12Or13
        | Why::ServerTlsVersionIsDisabledByOurConfig
        | Why::SupportedVersionsExtensionRequired
        | Why::Tls12NotOffered
        | Why::Tls12NotOfferedOrEnabled => Error::peer(258, "unsupported protocol"),
        other => Error::peer(110, "bad extension").with(format!("{other:?}")),
    }
}

fn of_misbehaviour(why: &PeerMisbehaved) -> Error {
    use PeerMisbehaved as Why;
    match why {
        Why::InvalidKeyShare
        | Why::OfferedDuplicateKeyShares
        | Why::WrongGroupForKeyShare
        | Why::RefusedToFollowHelloRetryRequest => Error::peer(108, "bad key share"),
        Why::IncorrectBinder => Error::peer(253, "binder does not verify"),
        Why::IllegalMiddleboxChangeCipherSpec => Error::peer(103, "bad change cipher spec"),
        Why::TooManyWarningAlertsReceived => Error::peer(409, "too many warn alerts"),
        Why::TooManyKeyUpdateRequests => Error::peer(132, "too many key updates"),
        Why::TooManyRenegotiationRequests => Error::peer(182, "no renegotiation"),
        Why::TooManyEmptyFragments => Error::peer(298, "record too small"),
        Why::TooMuchEarlyDataReceived => Error::peer(164, "too much early data"),
        Why::MissingKeyShare => Error::peer(101, "no suitable key share"),
        Why::MessageInterleavedWithHandshakeMessage | Why::KeyEpochWithPendingFragment => {
            Error::peer(293, "mixed handshake and non handshake data")
        }
        Why::SelectedUnofferedCipherSuite => Error::peer(261, "wrong cipher returned"),
        other => Error::peer(110, "bad extension").with(format!("{other:?}")),
    }
}

fn alert_text(alert: AlertDescription) -> &'static str {
    use AlertDescription as Alert;
    match alert {
        Alert::UnexpectedMessage => "ssl/tls alert unexpected message",
        Alert::BadRecordMac => "ssl/tls alert bad record mac",
        Alert::DecryptionFailed => "tlsv1 alert decryption failed",
        Alert::RecordOverflow => "tlsv1 alert record overflow",
        Alert::DecompressionFailure => "ssl/tls alert decompression failure",
        Alert::HandshakeFailure => "ssl/tls alert handshake failure",
        Alert::NoCertificate => "ssl/tls alert no certificate",
        Alert::BadCertificate => "ssl/tls alert bad certificate",
        Alert::UnsupportedCertificate => "ssl/tls alert unsupported certificate",
        Alert::CertificateRevoked => "ssl/tls alert certificate revoked",
        Alert::CertificateExpired => "ssl/tls alert certificate expired",
        Alert::CertificateUnknown => "ssl/tls alert certificate unknown",
        Alert::IllegalParameter => "ssl/tls alert illegal parameter",
        Alert::UnknownCA => "tlsv1 alert unknown ca",
        Alert::AccessDenied => "tlsv1 alert access denied",
        Alert::DecodeError => "tlsv1 alert decode error",
        Alert::DecryptError => "tlsv1 alert decrypt error",
        Alert::ExportRestriction => "tlsv1 alert export restriction",
        Alert::ProtocolVersion => "tlsv1 alert protocol version",
        Alert::InsufficientSecurity => "tlsv1 alert insufficient security",
        Alert::InternalError => "tlsv1 alert internal error",
        Alert::InappropriateFallback => "tlsv1 alert inappropriate fallback",
        Alert::UserCanceled => "tlsv1 alert user cancelled",
        Alert::NoRenegotiation => "tlsv1 alert no renegotiation",
        Alert::MissingExtension => "tlsv13 alert missing extension",
        Alert::UnsupportedExtension => "tlsv1 unsupported extension",
        Alert::CertificateUnobtainable => "tlsv1 certificate unobtainable",
        Alert::UnrecognisedName => "tlsv1 unrecognized name",
        Alert::BadCertificateStatusResponse => "tlsv1 bad certificate status response",
        Alert::BadCertificateHashValue => "tlsv1 bad certificate hash value",
        Alert::UnknownPSKIdentity => "tlsv1 alert unknown psk identity",
        Alert::CertificateRequired => "tlsv13 alert certificate required",
        Alert::NoApplicationProtocol => "tlsv1 alert no application protocol",
        _ => "unknown alert type",
    }
}
