//! Opens the store as its service does: by its URL, with the keys that decrypt results and the secret that
//! makes key digests.
//!
//! Owns the sources of the keys and the secret. They are never arguments, because other users of the machine
//! can see command lines.

use std::path::{Path, PathBuf};

use clap::Args;
use hex::FromHex as _;
use idem_cli::store::{FORMS, Names, StoreUrl};
use idem_operate_kit::{Access, Error};
use idem_wrappers::KeyRing;

use super::end::Answer;

/// Where the store is, and how its service keeps results and keys.
#[derive(Args)]
pub(crate) struct Place {
    /// The store, by its URL: see `idem --help`
    #[arg(long, global = true, env = "IDEM_STORE", hide_env_values = true, value_name = "URL")]
    store: Option<String>,
    /// A file with the store's URL, such as a mounted secret
    #[arg(long, global = true, env = "IDEM_STORE_FILE", value_name = "FILE", conflicts_with = "store")]
    store_file: Option<PathBuf>,
    /// The prefix of the store's keys, on Redis (`idem:` unless given), DynamoDB and NATS (none unless given)
    #[arg(long, global = true, value_name = "TEXT")]
    prefix: Option<String>,
    /// The schema of the table, on PostgreSQL
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) schema: Option<String>,
    /// The table, on PostgreSQL and MySQL (`idem_records`)
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) table: Option<String>,
    /// The service's encryption keys: lines `NUMBER HEX` with 64 digits; the first key encrypts, all decrypt.
    /// Or put the text into `IDEM_KEY_RING`
    #[arg(long, global = true, env = "IDEM_KEY_RING_FILE", value_name = "FILE")]
    key_ring_file: Option<PathBuf>,
    /// The secret of the service's key digests: 64 hexadecimal digits or 32 bytes. Or put the text into
    /// `IDEM_KEY_SECRET`
    #[arg(long, global = true, env = "IDEM_KEY_SECRET_FILE", value_name = "FILE")]
    key_secret_file: Option<PathBuf>,
    /// Also read results from before encryption was switched on
    #[arg(long, global = true)]
    accept_plain: bool,
}

impl Place {
    pub(crate) fn url(&self) -> Answer<String> {
        match (&self.store, &self.store_file) {
            (Some(url), _) => Ok(url.clone()),
            (None, Some(file)) => Ok(text(file)?.trim().to_owned()),
            (None, None) => Err(Error::usage(format!(
                "missing store: give `--store`, `--store-file` or IDEM_STORE: {FORMS}; see `idem --help`"
            ))),
        }
    }

    pub(crate) async fn open(&self) -> Answer<Access> {
        self.open_table(self.table.clone()).await
    }

    /// Opens the records in this table, or in the table with the default name.
    pub(crate) async fn open_table(&self, table: Option<String>) -> Answer<Access> {
        let url = StoreUrl::parse(&self.url()?).map_err(Error::usage)?;
        let (ring, secret) = (self.ring()?, self.secret()?);
        if self.accept_plain && ring.is_none() {
            return Err(Error::usage("`--accept-plain` needs `--key-ring-file`"));
        }
        let names =
            Names { prefix: self.prefix.clone(), schema: self.schema.clone(), table, must_exist: true };
        let mut access = Access::new(url.open(&names).await?);
        if let Some(ring) = ring {
            access = access.with_key_ring(ring, self.accept_plain);
        }
        if let Some(secret) = secret {
            access = access.with_key_secret(&secret);
        }
        // If the service uses other keys, this fails before anything else is done.
        access.layers().await?;
        Ok(access)
    }

    fn ring(&self) -> Answer<Option<KeyRing>> {
        let Some(text) = given(self.key_ring_file.as_ref(), "IDEM_KEY_RING")? else { return Ok(None) };
        let text = String::from_utf8(text).map_err(|_| wrong_ring())?;
        let mut ring = None::<KeyRing>;
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (number, digits) = line.split_once(char::is_whitespace).ok_or_else(wrong_ring)?;
            let number: u32 = number.parse().map_err(|_| wrong_ring())?;
            let key = <[u8; 32]>::from_hex(digits.trim()).map_err(|_| wrong_ring())?;
            ring = Some(match ring {
                None => KeyRing::new(number, &key),
                Some(ring) => {
                    ring.and_reads(number, &key).map_err(|error| Error::usage(error.to_string()))?
                }
            });
        }
        ring.map(Some).ok_or_else(wrong_ring)
    }

    fn secret(&self) -> Answer<Option<[u8; 32]>> {
        let Some(bytes) = given(self.key_secret_file.as_ref(), "IDEM_KEY_SECRET")? else { return Ok(None) };
        let raw = <[u8; 32]>::try_from(bytes.as_slice()).ok();
        let written = || <[u8; 32]>::from_hex(bytes.trim_ascii()).ok();
        let wrong =
            || Error::usage("the secret of key digests must be 64 hexadecimal digits, or a file of 32 bytes");
        raw.or_else(written).map(Some).ok_or_else(wrong)
    }
}

fn wrong_ring() -> Error {
    // The text is not shown, because it is a key or may contain one.
    Error::usage(
        "a key ring has lines `NUMBER HEX`: a number below 2^32 and 64 hexadecimal digits; the first key encrypts",
    )
}

pub(crate) fn content(file: &Path) -> Answer<Vec<u8>> {
    std::fs::read(file).map_err(|error| Error::usage(format!("cannot read {}: {error}", file.display())))
}

pub(crate) fn text(file: &Path) -> Answer<String> {
    let wrong = |_| Error::usage(format!("{} is not UTF-8", file.display()));
    String::from_utf8(content(file)?).map_err(wrong)
}

/// The content of the file, or of this environment variable if no file is given.
fn given(file: Option<&PathBuf>, variable: &str) -> Answer<Option<Vec<u8>>> {
    let of_variable = || std::env::var(variable).ok().map(String::into_bytes);
    file.map_or_else(|| Ok(of_variable()), |file| content(file).map(Some))
}
