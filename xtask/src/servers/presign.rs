//! Presigned URLs of S3, AWS signature version 4 with the signature in the query.
//! Specification: AWS "Authenticating Requests: Using Query Parameters (AWS Signature Version 4)".
//!
//! A test needs URLs that expired in the past, which no client library signs; it signs no request headers but the
//! host, so that a range stays free to choose.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use ring::{digest, hmac};

/// Who signs, and for what region.
#[derive(Clone, Copy)]
pub(crate) struct Signer<'a> {
    pub(crate) access_key: &'a str,
    pub(crate) secret_key: &'a str,
    pub(crate) region: &'a str,
}

/// From when, and for how long, a URL is good.
#[derive(Clone, Copy)]
pub(crate) struct Validity {
    pub(crate) from: SystemTime,
    pub(crate) lasts: Duration,
}

impl Signer<'_> {
    /// The URL of a GET of `path` (with its first slash, not encoded) at `scheme://host`.
    ///
    /// # Errors
    /// If the time lies before 1970.
    pub(crate) fn get(
        &self,
        scheme: &str,
        host: &str,
        path: &str,
        validity: Validity,
    ) -> Result<String> {
        let since_epoch = validity
            .from
            .duration_since(UNIX_EPOCH)
            .context("a time before 1970")?;
        let time = utc(since_epoch.as_secs());
        let day = time.get(..8).context("a date of eight digits")?;
        let scope = format!("{day}/{}/s3/aws4_request", self.region);
        let query = format!(
            "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={}&X-Amz-Date={time}&X-Amz-Expires={}&X-Amz-SignedHeaders=host",
            encoded(&format!("{}/{scope}", self.access_key), &[]),
            validity.lasts.as_secs(),
        );
        let path = encoded(path, b"/");
        let request = format!("GET\n{path}\n{query}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD");
        let hashed = hex(digest::digest(&digest::SHA256, request.as_bytes()).as_ref());
        let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{hashed}");
        let mut key = keyed(format!("AWS4{}", self.secret_key).as_bytes(), day);
        for part in [self.region, "s3", "aws4_request"] {
            key = keyed(key.as_ref(), part);
        }
        let signature = hex(keyed(key.as_ref(), &text).as_ref());
        Ok(format!(
            "{scheme}://{host}{path}?{query}&X-Amz-Signature={signature}"
        ))
    }
}

fn keyed(key: &[u8], text: &str) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// RFC 3986: everything but the unreserved characters and those in `kept` is percent-encoded.
fn encoded(text: &str, kept: &[u8]) -> String {
    text.bytes().fold(String::new(), |mut text, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || kept.contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
        text
    })
}

/// ISO 8601 basic format, UTC. Days to a date: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms",
/// `civil_from_days`, for years from 1970.
fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = 400 * era + year_of_era + u64::from(month <= 2);
    format!(
        "{year:04}{month:02}{day:02}T{:02}{:02}{:02}Z",
        second / 3_600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification: its key, its date, its signature.
    #[test]
    fn the_documented_example_has_the_documented_signature() -> Result<()> {
        let signer = Signer {
            access_key: "AKIAIOSFODNN7EXAMPLE",
            secret_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            region: "us-east-1",
        };
        let validity = Validity {
            from: UNIX_EPOCH + Duration::from_secs(1_369_353_600),
            lasts: Duration::from_secs(86_400),
        };
        let url = signer.get(
            "https",
            "examplebucket.s3.amazonaws.com",
            "/test.txt",
            validity,
        )?;
        assert_eq!(
            url,
            "https://examplebucket.s3.amazonaws.com/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256\
             &X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request\
             &X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host\
             &X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
        );
        Ok(())
    }

    #[test]
    fn dates_of_leap_years() {
        assert_eq!(utc(951_782_400), "20000229T000000Z");
        assert_eq!(utc(1_709_251_199), "20240229T235959Z");
        assert_eq!(utc(1_709_251_200), "20240301T000000Z");
    }
}
