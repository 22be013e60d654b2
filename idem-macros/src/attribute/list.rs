//! Reads the list of options, `name = value` or `name`, into the items that darling maps to fields.
//!
//! After a fault, the parser goes on with the next option, so that a fault in one option does not hide the
//! faults in other options. darling can read such a list, too, but stops at the first syntax fault.

use darling::ast::NestedMeta;
use proc_macro2::{TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Ident, Result, Token};

use super::names::NAMES;
use crate::diagnostics::{Faults, closest, list};

#[derive(Default)]
pub(super) struct List {
    /// The known options whose syntax is right, each once.
    pub(super) items: Vec<NestedMeta>,
    /// The names of all options, including options whose syntax is wrong.
    pub(super) names: Vec<Ident>,
}

impl List {
    /// Reads every option that can be read.
    pub(super) fn parse(tokens: TokenStream, faults: &mut Faults) -> Self {
        let mut list = Self::default();
        let read = (|input: ParseStream<'_>| list.options(input, faults)).parse2(tokens);
        faults.take(read);
        list
    }

    /// Reads all options. After a fault, reading continues at the next option.
    fn options(&mut self, input: ParseStream<'_>, faults: &mut Faults) -> Result<()> {
        while !input.is_empty() {
            if faults.take(self.option(input)).is_none() {
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

    fn option(&mut self, input: ParseStream<'_>) -> Result<()> {
        if input.peek(syn::LitStr) {
            // The text is most likely the key, so `key` is not reported as missing too.
            self.names.push(Ident::new("key", input.span()));
            return Err(
                input.error("an option begins with its name: if this is the key, write `key = ` before it")
            );
        }
        let expected = |_| input.error("expected an option, such as `ttl = \"24h\"`");
        let name = input.fork().call(Ident::parse_any).map_err(expected)?;
        let is_repeated = self.names.contains(&name);
        self.names.push(name.clone());
        let item: NestedMeta = input.parse()?;
        if !input.is_empty() && !input.peek(Token![,]) {
            return Err(input.error(format!("expected `{name} = ..`, and `,` before the next option")));
        }
        let message = if !NAMES.iter().any(|known| name == known) {
            unknown(&name.to_string())
        } else if is_repeated {
            format!("`{name}` is written twice: keep one")
        } else {
            self.items.push(item);
            return Ok(());
        };
        Err(syn::Error::new(name.span(), message))
    }
}

/// Whether the next tokens look like an option with a value.
fn is_option(input: ParseStream<'_>) -> bool {
    input.peek(syn::Ident) && input.peek2(Token![=]) && !input.peek2(Token![==])
}

fn unknown(name: &str) -> String {
    let meant = closest(name, NAMES).map_or_else(String::new, |meant| format!(": did you mean `{meant}`?"));
    format!("unknown option `{name}`{meant}\nhelp: the options are {}", list(NAMES))
}
