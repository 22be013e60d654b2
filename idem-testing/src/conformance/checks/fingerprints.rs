//! Checks that a fingerprint is its 32 bytes, whatever they are.

use crate::conformance::trial::{Checked, Trial, print_of, same};
use idem_core::protocol::{ClaimAnswer, Fingerprint};

pub(crate) async fn fingerprints_that_differ_in_one_bit_are_different(t: &Trial) -> Checked {
    let key = t.key("a")?;
    let bytes: [u8; 32] = std::array::from_fn(|index| u8::try_from(index * 7).unwrap_or(0));
    let recorded = t.ask().with_fingerprint(Some(Fingerprint::from_bytes(bytes)));
    t.grant(&key, &recorded).await?;
    for place in 0..256 {
        let mut other = bytes;
        other[place / 8] ^= 1 << (place % 8);
        let request = t.ask().with_fingerprint(Some(Fingerprint::from_bytes(other)));
        let answer = t.claim(&key, &request).await?;
        same(&format!("claim with bit {place} changed"), answer, ClaimAnswer::Mismatch)?;
    }
    Ok(())
}

pub(crate) async fn fingerprints_of_odd_bytes_are_kept_as_they_are(t: &Trial) -> Checked {
    let texts: [&[u8]; 6] = [b"\0", b"\xff", b"'", b"%", b"\n", b"0"];
    for (number, text) in texts.into_iter().enumerate() {
        let key = t.key(format!("{number}"))?;
        let bytes = [text[0]; 32];
        let request = t.ask().with_fingerprint(Some(Fingerprint::from_bytes(bytes)));
        t.grant(&key, &request).await?;
        same("fingerprint", t.record(&key).await?.fingerprint, request.fingerprint)?;
        t.grant(&key, &request).await?;
        same(
            "claim",
            t.claim(&key, &t.ask().with_fingerprint(Some(print_of(1)))).await?,
            ClaimAnswer::Mismatch,
        )?;
    }
    Ok(())
}
