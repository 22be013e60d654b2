//! Parsing of options: `name = value` and `name`.
//!
//! Owns the syntax and which options there are. `validate` owns which values are valid. A fault in one option does not
//! hide the faults in others.

use std::fmt::Display;

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::spanned::Spanned;
use syn::{Expr, Ident, Meta, MetaNameValue, Token};

use super::names::NAMES;
use crate::diagnostics::{Fault, Faults, closest, list};
use crate::key::expression::ungrouped;

/// An option that may be absent, valid or faulty.
pub(crate) type Given<T> = Option<Result<T, Fault>>;

/// The options of one use.
#[derive(Debug, Default)]
pub(crate) struct Options {
    pub(crate) key: Given<Value>,
    pub(crate) store: Given<Value>,
    pub(crate) ttl: Given<Value>,
    pub(crate) lease: Given<Value>,
    pub(crate) scope: Given<Value>,
    pub(crate) fingerprint: Given<Value>,
    pub(crate) wait: Given<Value>,
    pub(crate) terminal: Given<Value>,
    pub(crate) on_crash: Given<Value>,
    pub(crate) recover: Given<Value>,
    pub(crate) max_attempts: Given<Value>,
    pub(crate) timeout: Given<Value>,
    pub(crate) retry_after: Given<Value>,
    pub(crate) record_if: Given<Value>,
    pub(crate) store_timeout: Given<Value>,
    pub(crate) fail_open: Given<Word>,
    pub(crate) detach: Given<Word>,
    pub(crate) missing_key: Given<Value>,
    pub(crate) key_fn: Given<Value>,
    pub(crate) transaction: Given<Value>,
    pub(crate) runtime: Given<Value>,
    /// The names of all options, including those that did not parse.
    pub(crate) seen: Vec<String>,
}

/// An option with a value.
#[derive(Debug)]
pub(crate) struct Value(pub(crate) Expr);

impl Value {
    fn of(name: &str, meta: Meta) -> Result<Self, Fault> {
        match meta {
            Meta::NameValue(named) => Ok(Self(ungrouped(&named.value).clone())),
            other => {
                Err(Fault::at(&other, format!("missing the value of `{name}`\nhelp: write `{name} = ..`")))
            }
        }
    }
}

/// An option without a value, and where it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Word(pub(crate) Span);

impl Word {
    fn of(name: &str, meta: &Meta) -> Result<Self, Fault> {
        match meta {
            Meta::Path(path) => Ok(Self(path.span())),
            other => Err(Fault::at(
                &other,
                format!("`{name}` takes no value\nhelp: write `{name}` alone, or leave it out"),
            )),
        }
    }
}

impl Options {
    /// Reads every option that can be read.
    pub(crate) fn parse(tokens: TokenStream, faults: &mut Faults) -> Self {
        let mut found = Found::default();
        faults.take((|input: ParseStream<'_>| found.parse(input)).parse2(tokens));
        faults.extend(found.faults);
        let mut options = Self { seen: found.seen, ..Self::default() };
        for (name, meta) in found.options {
            options.set(&name, meta);
        }
        options
    }

    /// Stores the option called `name`; ignores unknown names.
    fn set(&mut self, name: &str, meta: Meta) {
        let place = match name {
            "fail_open" => return self.fail_open = Some(Word::of(name, &meta)),
            "detach" => return self.detach = Some(Word::of(name, &meta)),
            "key" => &mut self.key,
            "store" => &mut self.store,
            "ttl" => &mut self.ttl,
            "lease" => &mut self.lease,
            "scope" => &mut self.scope,
            "fingerprint" => &mut self.fingerprint,
            "wait" => &mut self.wait,
            "terminal" => &mut self.terminal,
            "on_crash" => &mut self.on_crash,
            "recover" => &mut self.recover,
            "max_attempts" => &mut self.max_attempts,
            "timeout" => &mut self.timeout,
            "retry_after" => &mut self.retry_after,
            "record_if" => &mut self.record_if,
            "store_timeout" => &mut self.store_timeout,
            "key_fn" => &mut self.key_fn,
            "missing_key" => &mut self.missing_key,
            "transaction" => &mut self.transaction,
            "crate" => &mut self.runtime,
            _ => return,
        };
        *place = Some(Value::of(name, meta));
    }
}

#[derive(Default)]
struct Found {
    options: Vec<(String, Meta)>,
    seen: Vec<String>,
    faults: Vec<Fault>,
}

impl Found {
    /// Parses all options. After a fault it continues at the next option.
    fn parse(&mut self, input: ParseStream<'_>) -> syn::Result<()> {
        while !input.is_empty() {
            if let Err(fault) = self.option(input) {
                self.faults.push(fault);
                while !input.is_empty() && !input.peek(Token![,]) && !is_option(input) {
                    input.parse::<TokenTree>()?;
                }
            }
            if input.peek(Token![,]) {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(())
    }

    fn option(&mut self, input: ParseStream<'_>) -> Result<(), Fault> {
        if input.peek(syn::LitStr) {
            // The text is most likely the key, so `key` is not reported as missing too.
            self.seen.push("key".into());
        }
        let name = input.call(Ident::parse_any).map_err(|_| no_name(input))?;
        let text = name.unraw().to_string();
        let known = NAMES.contains(&text.as_str());
        let repeated = self.seen.contains(&text);
        if !known {
            self.faults.push(Fault::at(&name, unknown(&text)));
        } else if repeated {
            self.faults.push(Fault::at(&name, format!("`{text}` is given twice: keep one")));
        }
        self.seen.push(text.clone());
        let option = value(input, name, &text)?;
        let separated = input.is_empty() || input.peek(Token![,]);
        let unseparated = format!("expected `,` after the value of `{text}`");
        if known && !repeated {
            self.options.push((text, option));
        }
        if separated { Ok(()) } else { Err(next(input, unseparated)) }
    }
}

/// Whether the next tokens look like an option with a value.
fn is_option(input: ParseStream<'_>) -> bool {
    input.peek(syn::Ident) && input.peek2(Token![=]) && !input.peek2(Token![==])
}

/// Parses the part after a name.
fn value(input: ParseStream<'_>, name: Ident, text: &str) -> Result<Meta, Fault> {
    if input.is_empty() || input.peek(Token![,]) {
        return Ok(Meta::Path(name.into()));
    }
    if !input.peek(Token![=]) || input.peek(Token![==]) || input.peek(Token![=>]) {
        return Err(next(input, format!("expected `=`: write `{text} = ..`")));
    }
    let eq_token: Token![=] = input.parse()?;
    if input.is_empty() || input.peek(Token![,]) {
        return Err(Fault::at(&eq_token, format!("`{text}` has no value after its `=`")));
    }
    let value = input.parse().map_err(|fault: syn::Error| {
        syn::Error::new(fault.span(), format!("the value of `{text}` is no expression: {fault}"))
    })?;
    Ok(Meta::NameValue(MetaNameValue { path: name.into(), eq_token, value }))
}

/// A fault at the next token.
fn next(input: ParseStream<'_>, message: impl Display) -> Fault {
    match input.cursor().token_tree() {
        Some((token, _)) => Fault::at(&token, message),
        None => input.error(message).into(),
    }
}

fn no_name(input: ParseStream<'_>) -> Fault {
    if input.peek(syn::LitStr) {
        next(input, "an option begins with its name: if this is the key, write `key = ` before it")
    } else {
        next(input, "expected an option, such as `ttl = \"24h\"`")
    }
}

fn unknown(name: &str) -> String {
    let all = list(NAMES);
    match meant(name) {
        Some(meant) => {
            format!("unknown option `{name}`\nhelp: did you mean `{meant}`? The options are {all}")
        }
        None => format!("unknown option `{name}`\nhelp: the options are {all}"),
    }
}

/// The option that was probably meant: its name in other libraries, or a name with a similar spelling.
fn meant(name: &str) -> Option<&'static str> {
    match name {
        "expire" | "expires" | "expiry" | "expires_in" | "time" | "retention" => Some("ttl"),
        "name" | "prefix" | "namespace" | "operation" => Some("scope"),
        "id" | "idempotency_key" | "convert" => Some("key"),
        "backend" | "storage" => Some("store"),
        "retries" | "attempts" | "max_retries" => Some("max_attempts"),
        "hash" | "payload" => Some("fingerprint"),
        "backoff" | "retry" | "delay" | "cooldown" => Some("retry_after"),
        "cache_if" | "cacheable" | "keep_if" => Some("record_if"),
        "deadline" | "max_duration" => Some("timeout"),
        "krate" | "path" => Some("crate"),
        "on_rerun" | "resume" | "recovery" => Some("recover"),
        "tx" | "conn" | "connection" | "transactional" => Some("transaction"),
        _ => closest(name, NAMES),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> (Options, Vec<String>) {
        let mut faults = Faults::default();
        let options = Options::parse(text.parse().unwrap(), &mut faults);
        (options, faults.messages())
    }

    #[test]
    fn every_name_is_an_option() {
        for name in NAMES {
            let value = if matches!(name, "fail_open" | "detach") { "" } else { "= x" };
            let (options, faults) = parse(&format!("{name} {value}"));
            assert!(faults.is_empty(), "{name}: {faults:?}");
            let known = format!("{options:?}");
            assert!(known.contains("Some(Ok("), "{name} is set nowhere");
        }
    }

    #[test]
    fn a_fault_in_one_option_does_not_hide_the_others() {
        let (options, faults) =
            parse("key =, store app, ttl = 1 2, tll = \"1h\", detach, detach, \"x\", wait = 1 +");
        assert_eq!(faults.len(), 7, "{faults:#?}");
        assert!(options.detach.is_some());
        assert!(options.seen.contains(&"key".to_owned()));
    }

    #[test]
    fn an_unknown_option_is_answered_with_what_was_meant() {
        let (_, faults) = parse("tll = 1, expires_in = 2, zzz");
        assert!(faults[0].contains("did you mean `ttl`"));
        assert!(faults[1].contains("did you mean `ttl`"));
        assert!(faults[2].starts_with("unknown option `zzz`\nhelp: the options are `key`,"));
    }

    #[test]
    fn words_and_values_are_not_taken_for_each_other() {
        let (options, faults) = parse("detach = true, store");
        assert!(faults.is_empty());
        assert!(options.detach.unwrap().unwrap_err().to_error().to_string().contains("takes no value"));
        assert!(options.store.unwrap().unwrap_err().to_error().to_string().contains("missing the value"));
    }

    #[test]
    fn closures_and_keywords_are_values_and_names() {
        let (options, faults) =
            parse("terminal = |e| matches!(e, E::A | E::B), crate = ::a::b, key = (a, b),");
        assert!(faults.is_empty(), "{faults:?}");
        assert!(options.runtime.unwrap().is_ok());
    }
}
