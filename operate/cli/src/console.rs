//! `idem console`: serves the console behind a token.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use idem_console::{Console as Pages, Login};
use idem_operate_kit::{Access, Error, Kind};

use super::end::{Answer, End};
use super::output::Output;
use super::place::text;

/// The least length of a token, in bytes. Someone could guess a shorter token.
const SHORTEST_TOKEN: usize = 16;

#[derive(Args)]
pub(crate) struct Console {
    /// The address to listen on; port 0 takes a free port
    #[arg(long, default_value = "127.0.0.1:7878", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// A file with the token for signing in; needed behind a proxy, and if other machines can reach the
    /// address. Without this option, the console makes a token and prints it
    #[arg(long, env = "IDEM_CONSOLE_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The address that browsers see, behind a proxy: `https://idem.example`
    #[arg(long, value_name = "URL", value_parser = origin)]
    public_url: Option<String>,
    /// Show records, and change none; the audit trail still notes who saw a result
    #[arg(long)]
    read_only: bool,
}

/// Parses a URL that must have no path, and returns its origin.
fn origin(url: &str) -> Result<String, String> {
    let origin = url.trim_end_matches('/');
    let host = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
    match host {
        Some(host) if !host.is_empty() && !host.contains(['/', '?', '#', '@']) => Ok(origin.to_owned()),
        _ => Err("expected https://HOST or http://HOST, without a path".to_owned()),
    }
}

impl Console {
    const fn is_local(&self) -> bool {
        self.listen.ip().is_loopback() && self.public_url.is_none()
    }

    /// The token, and whether this command generated it.
    fn token(&self) -> Answer<(String, bool)> {
        let Some(file) = &self.token_file else {
            if !self.is_local() {
                return Err(Error::usage("other machines can reach this console: give `--token-file`"));
            }
            return Ok((Login::random_token(), true));
        };
        let token = text(file)?.trim().to_owned();
        if token.len() < SHORTEST_TOKEN {
            return Err(Error::usage(format!(
                "the token must have at least {SHORTEST_TOKEN} bytes, better 32 random ones"
            )));
        }
        Ok((token, false))
    }
}

pub(crate) async fn run(console: &Console, access: Access, costly: bool, output: &mut Output) -> Answer {
    let (token, is_made_up) = console.token()?;
    let cannot = |error: std::io::Error| {
        Error::new(Kind::Unusable, format!("cannot listen on {}: {error}", console.listen))
    };
    let listener = tokio::net::TcpListener::bind(console.listen).await.map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    output.line(format!("console at http://{address}/"))?;
    if is_made_up {
        output.line(format!("token to sign in, until this process ends: {token}"))?;
    }
    output.flush()?;
    let mut pages = Pages::of(access);
    if costly {
        pages = pages.costly();
    }
    if console.read_only {
        pages = pages.read_only();
    }
    let mut login = Login::new(&token);
    if console.is_local() {
        login = login.local();
    }
    if let Some(origin) = &console.public_url {
        login = login.origin(origin.clone());
    }
    axum::serve(listener, login.protect(pages)).await.map_err(cannot)?;
    Ok(End::Done)
}
