//! Reading of the list of options, `name = value` or `name`, up to the items that darling maps to fields.
//!
//! Owns the syntax. darling reads such a list too, but ends at the first fault of its syntax; here a fault in one option
//! does not hide the faults in others.

use std::fmt::Display;

use darling::ast::NestedMeta;
use proc_macro2::{TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Expr, Ident, Meta, MetaNameValue, Token};

use super::names::NAMES;
use crate::diagnostics::{Fault, Faults, closest, list};
use crate::key::expression::ungrouped;

/// The options without a value.
const WORDS: [&str; 2] = ["fail_open", "detach"];

/// The list of one use.
#[derive(Default)]
pub(super) struct List {
    /// The options whose syntax is right, each once.
    pub(super) items: Vec<NestedMeta>,
    /// The names of all options, including those that did not parse.
    pub(super) names: Vec<String>,
    faults: Vec<Fault>,
}

impl List {
    /// Reads every option that can be read.
    pub(super) fn parse(tokens: TokenStream, faults: &mut Faults) -> Self {
        let mut list = Self::default();
        faults.take((|input: ParseStream<'_>| list.options(input)).parse2(tokens));
        faults.extend(std::mem::take(&mut list.faults));
        list
    }

    /// After a fault it continues at the next option.
    fn options(&mut self, input: ParseStream<'_>) -> syn::Result<()> {
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
            self.names.push("key".into());
        }
        let written = input.call(Ident::parse_any).map_err(|_| no_name(input))?;
        let text = written.unraw().to_string();
        let is_known = NAMES.contains(&text.as_str());
        let is_repeated = self.names.contains(&text);
        if !is_known {
            self.faults.push(Fault::at(&written, unknown(&text)));
        } else if is_repeated {
            self.faults.push(Fault::at(&written, format!("`{text}` is given twice: keep one")));
        }
        self.names.push(text.clone());
        let item = item(input, Ident::new(&text, written.span()), &text)?;
        let is_separated = input.is_empty() || input.peek(Token![,]);
        let unseparated = format!("expected `,` after the value of `{text}`");
        if is_known && !is_repeated {
            let shape = shape(&text, &item);
            self.items
                .extend(shape.map_err(|fault| self.faults.push(fault)).map(|()| NestedMeta::Meta(item)));
        }
        if is_separated { Ok(()) } else { Err(next(input, unseparated)) }
    }
}

/// Whether the next tokens look like an option with a value.
fn is_option(input: ParseStream<'_>) -> bool {
    input.peek(syn::Ident) && input.peek2(Token![=]) && !input.peek2(Token![==])
}

/// The option with what is after its name.
fn item(input: ParseStream<'_>, name: Ident, text: &str) -> Result<Meta, Fault> {
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
    let value: Expr = input.parse().map_err(|fault: syn::Error| {
        syn::Error::new(fault.span(), format!("the value of `{text}` is no expression: {fault}"))
    })?;
    let value = ungrouped(&value).clone();
    Ok(Meta::NameValue(MetaNameValue { path: name.into(), eq_token, value }))
}

/// Whether the option has a value exactly if it needs one.
fn shape(name: &str, item: &Meta) -> Result<(), Fault> {
    match (item, WORDS.contains(&name)) {
        (Meta::Path(_), false) => {
            Err(Fault::at(item, format!("missing the value of `{name}`\nhelp: write `{name} = ..`")))
        }
        (Meta::NameValue(_), true) => {
            let message = format!("`{name}` takes no value\nhelp: write `{name}` alone, or leave it out");
            Err(Fault::at(item, message))
        }
        _ => Ok(()),
    }
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
