//! A certificate authority and certificates signed by it, in files named as by qemu and nbdkit.
#![allow(dead_code, reason = "each of the tests that include it uses a part")]

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};
use std::path::Path;

/// The serial number of a valid client certificate, and of a revoked one.
const GOOD: u8 = 2;
const REVOKED: u8 = 3;

/// A certificate authority.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    /// A new authority with a key of its own.
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("it signs itself"))
    }

    /// Writes its certificate.
    pub(crate) fn write_own(&self, directory: &Path) {
        write(directory, "ca-cert.pem", &self.0.pem());
    }

    /// Writes a server's certificate for `localhost`, and its key.
    pub(crate) fn write_server(&self, directory: &Path) {
        self.write(directory, "server", ExtendedKeyUsagePurpose::ServerAuth, 1);
    }

    /// Writes a client's certificate and its key.
    pub(crate) fn write_client(&self, directory: &Path) {
        self.write(directory, "client", ExtendedKeyUsagePurpose::ClientAuth, GOOD);
    }

    /// Writes a client's certificate that [`Authority::write_revocations`] revokes.
    pub(crate) fn write_revoked_client(&self, directory: &Path) {
        self.write(directory, "client", ExtendedKeyUsagePurpose::ClientAuth, REVOKED);
    }

    /// Writes the list of revoked certificates.
    pub(crate) fn write_revocations(&self, directory: &Path) {
        let revoked = RevokedCertParams {
            serial_number: vec![REVOKED].into(),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(4000, 1, 1),
            crl_number: SerialNumber::from(vec![1]),
            issuing_distribution_point: None,
            revoked_certs: vec![revoked],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        write(directory, "ca-crl.pem", &list.signed_by(self.issuer()).expect("a list").pem().expect("as text"));
    }

    fn issuer(&self) -> &Issuer<'static, KeyPair> {
        &self.0
    }

    fn write(&self, directory: &Path, name: &str, purpose: ExtendedKeyUsagePurpose, serial: u8) {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        params.extended_key_usages = vec![purpose];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.serial_number = Some(vec![serial].into());
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, self.issuer()).expect("a certificate");
        write(directory, &format!("{name}-cert.pem"), &certificate.pem());
        write(directory, &format!("{name}-key.pem"), &key.serialize_pem());
    }
}

fn write(directory: &Path, name: &str, text: &str) {
    std::fs::create_dir_all(directory).expect("a directory");
    std::fs::write(directory.join(name), text).expect("a file");
}
