//! NBD over TLS with third-party clients: nbdinfo, nbdcopy (GnuTLS, by libnbd), qemu-img and qemu-io (GnuTLS).
//!
//! A missing program fails its test with the name of its package: nothing is skipped.

#[path = "support/certificates.rs"]
mod certificates;
#[path = "support/served.rs"]
mod served;

use certificates::Authority;
use mdspace_export::Credentials;
use mdspace_export::nbd::tls::Security;
use served::{BYTES, Served, image, run};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A server's directory of certificates, and one for a client.
struct Keys {
    directory: tempfile::TempDir,
    authority: Authority,
}

impl Keys {
    fn new() -> Self {
        let keys = Self { directory: tempfile::tempdir().expect("a temporary directory"), authority: Authority::new() };
        keys.authority.write_own(&keys.path("server"));
        keys.authority.write_server(&keys.path("server"));
        keys.authority.write_own(&keys.path("client"));
        keys
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn credentials(&self, verify_peer: bool) -> Credentials {
        Credentials::load(&self.path("server"), verify_peer).expect("certificates")
    }
}

/// The NBD URI of a client whose certificates are in `directory`.
fn uri(served: &Served, directory: &Path) -> String {
    let (socket, directory) = (served.path("nbd"), directory.display());
    format!("nbds+unix:///array?socket={}&tls-certificates={directory}", socket.display())
}

/// Whether a client can connect, and its output.
fn enters(uri: &str) -> (bool, String) {
    let output = Command::new("nbdinfo").args(["--size", uri]).output().expect("nbdinfo: apt-get install libnbd-bin");
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn an_image_goes_in_and_out_through_tls_unchanged() {
    let keys = Keys::new();
    let served = Served::secured(BYTES, false, Security::Required(keys.credentials(false)));
    let uri = uri(&served, &keys.path("client"));
    let info = run("libnbd-bin", "nbdinfo", &["--json", &uri]);
    assert!(info.contains("\"TLS\": true"), "{info}");
    let (from, to) = (served.path("in"), served.path("out"));
    let bytes = image(&from);
    run("libnbd-bin", "nbdcopy", &[from.to_str().expect("a plain path"), &uri]);
    run("libnbd-bin", "nbdcopy", &[&uri, to.to_str().expect("a plain path")]);
    assert!(std::fs::read(&to).expect("the copy is there") == bytes);

    let object = format!("tls-creds-x509,id=tls,endpoint=client,dir={}", keys.path("client").display());
    let image = format!(
        "driver=nbd,export=array,server.type=unix,server.path={},tls-creds=tls,tls-hostname=localhost",
        served.path("nbd").display()
    );
    let plain = format!("driver=raw,file.driver=file,file.filename={}", from.display());
    let compare = ["compare", "--object", &object, "--image-opts", &plain, &image];
    assert!(run("qemu-utils", "qemu-img", &compare).contains("Images are identical"));
    let mut commands = vec!["--object", &object, "--image-opts"];
    for command in ["write -P 0xa5 1M 3M", "write -z -f 2M 64k", "flush", "read -P 0xa5 1M 1M", "read -P 0 2M 64k"] {
        commands.extend(["-c", command]);
    }
    commands.push(&image);
    let said = run("qemu-utils", "qemu-io", &commands);
    assert!(!said.contains("failed") && !said.contains("error"), "{said}");
    let contents = served.stop();
    assert!(contents[8 << 20..] == bytes[8 << 20..], "nothing else was touched by qemu-io");
    assert!(contents[1 << 20..2 << 20].iter().all(|byte| *byte == 0xa5));
}

#[test]
fn a_client_without_tls_is_served_only_where_tls_is_not_required() {
    let keys = Keys::new();
    let table: [(Security, bool, bool); 3] = [
        (Security::Plain, true, false),
        (Security::Offered(keys.credentials(false)), true, true),
        (Security::Required(keys.credentials(false)), false, true),
    ];
    for (number, (security, plain, through_tls)) in table.into_iter().enumerate() {
        let served = Served::secured(BYTES, false, security);
        let (entered, said) = enters(&served.uri());
        assert_eq!(entered, plain, "{number}, without TLS: {said}");
        let (entered, said) = enters(&uri(&served, &keys.path("client")));
        assert_eq!(entered, through_tls, "{number}, through TLS: {said}");
    }
}

#[test]
fn a_client_that_has_to_show_a_certificate_needs_one_of_the_authority_that_is_not_revoked() {
    let keys = Keys::new();
    keys.authority.write_revocations(&keys.path("server"));
    let served = Served::secured(BYTES, false, Security::Required(keys.credentials(true)));
    let own = |name: &str| {
        keys.authority.write_own(&keys.path(name));
        keys.path(name)
    };
    let none = own("none");
    let stranger = own("stranger");
    Authority::new().write_client(&stranger);
    let revoked = own("revoked");
    keys.authority.write_revoked_client(&revoked);
    let good = own("good");
    keys.authority.write_client(&good);
    for (directory, expected) in [(none, false), (stranger, false), (revoked, false), (good, true)] {
        let (entered, said) = enters(&uri(&served, &directory));
        assert_eq!(entered, expected, "{}: {said}", directory.display());
    }
}

#[test]
fn renewed_certificates_and_revocations_count_without_a_restart_and_unusable_ones_change_nothing() {
    let keys = Keys::new();
    let (server, good, revoked) = (keys.path("server"), keys.path("good"), keys.path("revoked"));
    keys.authority.write_own(&good);
    keys.authority.write_own(&revoked);
    keys.authority.write_client(&good);
    keys.authority.write_revoked_client(&revoked);
    let credentials = keys.credentials(true);
    let served = Served::secured(BYTES, false, Security::Required(credentials.clone()));
    let list = server.join("ca-crl.pem");
    let of_another = |name: &str| {
        let other = tempfile::tempdir().expect("a temporary directory");
        Authority::new().write_server(other.path());
        std::fs::copy(other.path().join(name), server.join(name)).expect("written");
    };
    let steps: [(&str, &dyn Fn(), bool, bool); 6] = [
        ("nothing is revoked", &|| {}, true, true),
        ("a list comes", &|| keys.authority.write_revocations(&server), true, false),
        ("it is damaged", &|| std::fs::write(&list, "no list").expect("written"), true, false),
        ("it is gone", &|| std::fs::remove_file(&list).expect("removed"), true, false),
        ("it is back", &|| keys.authority.write_revocations(&server), true, false),
        ("the key is another's", &|| of_another("server-key.pem"), true, false),
    ];
    for (step, change, good_enters, revoked_enters) in steps {
        change();
        credentials.load_changes();
        for (directory, expected) in [(&good, good_enters), (&revoked, revoked_enters)] {
            let (entered, said) = enters(&uri(&served, directory));
            assert_eq!(entered, expected, "{step}, {}: {said}", directory.display());
        }
    }

    // libnbd does not check the server's name on a unix socket; qemu does.
    let object = format!("tls-creds-x509,id=tls,endpoint=client,dir={}", good.display());
    let image = format!(
        "driver=nbd,export=array,server.type=unix,server.path={},tls-creds=tls,tls-hostname=localhost",
        served.path("nbd").display()
    );
    let trusts = || {
        let arguments = ["info", "--object", &object, "--image-opts", &image];
        Command::new("qemu-img")
            .args(arguments)
            .output()
            .expect("qemu-img: apt-get install qemu-utils")
            .status
            .success()
    };
    assert!(trusts(), "the certificate of before");
    Authority::new().write_server(&server);
    credentials.load_changes();
    assert!(!trusts(), "a certificate of another authority");
    keys.authority.write_server(&server);
    let begun = Instant::now();
    while !trusts() {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing looks for a new certificate");
    }
}

/// A revocation list that is not understood would admit certificates that it revokes.
#[test]
fn a_file_of_revocations_is_used_whole_or_refused_by_its_name() {
    let keys = Keys::new();
    keys.authority.write_revocations(&keys.path("server"));
    let file = keys.path("server").join("ca-crl.pem");
    let good = std::fs::read_to_string(&file).expect("a list");
    let authority = std::fs::read_to_string(keys.path("server").join("ca-cert.pem")).expect("a certificate");
    let der =
        Command::new("openssl").args(["crl", "-outform", "DER", "-in"]).arg(&file).output().expect("openssl").stdout;
    assert!(der.len() > 100, "openssl makes the other form");
    let load = |contents: &[u8]| {
        std::fs::write(&file, contents).expect("written");
        Credentials::load(&keys.path("server"), true).map(drop).map_err(|error| error.to_string())
    };
    for whole in [good.clone(), format!("{good}{good}"), format!("# comment\n{good}")] {
        load(whole.as_bytes()).unwrap_or_else(|error| panic!("{whole}: {error}"));
    }
    let cut_off = &good.as_bytes()[..good.len() / 2];
    let damaged = good.replace("X509 CRL", "X509  CRL");
    let half = format!("{good}{damaged}");
    let mixed = format!("{good}{authority}");
    let table: [(&str, &[u8]); 7] = [
        ("empty", b""),
        ("DER", &der),
        ("cut off", cut_off),
        ("a certificate", authority.as_bytes()),
        ("a damaged label", damaged.as_bytes()),
        ("one of two damaged", half.as_bytes()),
        ("a certificate beside it", mixed.as_bytes()),
    ];
    for (what, contents) in table {
        let error = load(contents).expect_err(what);
        assert!(error.contains("ca-crl.pem"), "{what}: {error}");
    }
    std::fs::remove_file(&file).expect("removed");
    std::os::unix::fs::symlink("/nonexistent", &file).expect("linked");
    let error = Credentials::load(&keys.path("server"), true).err().expect("it leads nowhere").to_string();
    assert!(error.contains("ca-crl.pem"), "{error}");
    std::fs::remove_file(&file).expect("removed");
    Credentials::load(&keys.path("server"), true).map(drop).expect("nothing is revoked");
}

#[test]
fn credentials_that_cannot_be_used_are_refused_by_the_name_of_their_file() {
    let damage: [(&str, Option<&str>); 7] = [
        ("ca-cert.pem", None),
        ("ca-cert.pem", Some("")),
        ("ca-crl.pem", Some("-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n")),
        ("server-cert.pem", None),
        ("server-cert.pem", Some("no certificate")),
        ("server-key.pem", None),
        ("server-key.pem", Some("-----BEGIN PRIVATE KEY-----\n*\n-----END PRIVATE KEY-----\n")),
    ];
    for (name, contents) in damage {
        let keys = Keys::new();
        let file = keys.path("server").join(name);
        match contents {
            Some(contents) => std::fs::write(&file, contents).expect("a file"),
            None => std::fs::remove_file(&file).expect("a file"),
        }
        let error = Credentials::load(&keys.path("server"), true).err().expect(name).to_string();
        assert!(error.contains(name), "{name}: {error}");
    }
    let keys = Keys::new();
    let other = tempfile::tempdir().expect("a temporary directory");
    keys.authority.write_server(other.path());
    std::fs::copy(other.path().join("server-key.pem"), keys.path("server").join("server-key.pem")).expect("a key");
    let error = Credentials::load(&keys.path("server"), false).err().expect("another's key").to_string();
    assert!(error.contains("server-cert.pem"), "{error}");
}
